"""Settings of a service, read from its environment; a faulty one is told by the variable's name.

Each setting of the engine (a field of ``StreamsConfig``) has the variable ``STREAMCORE_<NAME>``.
``<SERVICE>_<NAME>`` wins over it for one service, since all processes of an application share
their variables. A service's own settings are ``<SERVICE>_<NAME>``; some have a plain name too
(``KAFKA_URL``, ``EMIT``), which the prefixed ones beat. An empty variable counts as not set.

For what no variable sets there are defaults, in this order: the service's own of engine settings
(``engine_defaults``), what suits the place (``streamcore.heroku``: a dyno), ``StreamsConfig``'s.
The plain names of the brokers belong to the attachment KAFKA; ``STREAMCORE_KAFKA_ATTACHMENT`` names
another one, and where nothing of it is set the only variable that holds an address is found. So a
prefixed variable wins over the attachment that is named, that over the plain variable, and that
over what is found; the sink's database is chosen by the same rule. An attachment may itself be
called as a prefixed variable is (``STREAMCORE_KAFKA``): its prefix then comes with its address.

A variable with one of these prefixes that nobody knows is refused with the nearest right name: a
misspelt setting would otherwise be a default that nobody wanted.
"""

import dataclasses
import difflib
import json
import os
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from streamcore.config import StreamsConfig
from streamcore.errors import ConfigError
from streamcore.heroku import engine_defaults, kafka_variables

ENGINE_PREFIX = "STREAMCORE_"
ENTRY_POINTS = "streamcore.applications"  # by which services are found, see streamcore.application

_PLAIN_ENGINE_NAMES = kafka_variables({})
_ATTACHMENT = "kafka_attachment"  # a variable like a setting's, but nothing that the engine knows
_PER_SERVICE = frozenset({"application_id"})  # one for all would put all services into one group
_SECRET = re.compile(r"url|cert|key|password|kafka_settings")  # values that messages leave out
_FOUND_AT_START = re.compile(
    r"\b(?:kafka_url|kafka_trusted_cert|kafka_client_cert|kafka_client_cert_key|metrics_port)\b"
)
_NO_BROKER_URL = "kafka://127.0.0.1:9092"  # for commands that talk to no broker

S = TypeVar("S", bound="ServiceSettings")


@dataclass(frozen=True, slots=True)
class Variable:
    """A setting and the variables it is read from; of several that are set, the first wins."""

    field: str
    names: tuple[str, ...]
    default: Any
    kind: Any
    engine: bool

    @property
    def secret(self) -> bool:
        return _SECRET.search(self.field) is not None

    def source(self, environment: Mapping[str, str]) -> str | None:
        """Return the name that decides in this environment, None when the default does."""
        return next((name for name in self.names if environment.get(name)), None)

    def complaint(self, environment: Mapping[str, str], reason: str) -> str:
        """Return one line on a value that cannot be used; a secret one is not repeated."""
        name = self.source(environment) or self.names[0]
        shown = "" if self.secret else f" is {environment.get(name, self.default)!r}"
        return f"{name}{shown}: {reason[:1].lower()}{reason[1:]}"


class ServiceSettings(BaseSettings):
    """The settings of one service; a subclass adds fields, each with a default.

    ``service`` is the prefix of its variables in lower case. ``plain_names`` gives fields a second
    name without that prefix. ``engine_defaults`` are its own defaults of engine settings.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    service: ClassVar[str]
    plain_names: ClassVar[Mapping[str, str]] = {}
    engine_defaults: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic's signature
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read what is given in the call, then the variables, and nothing else."""
        assert issubclass(settings_cls, ServiceSettings)
        return init_settings, _Variables(settings_cls)


class _Variables(PydanticBaseSettingsSource):
    """The environment, read by the names of ``variables``."""

    settings_cls: type[ServiceSettings]

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        variable = _own_variable(self.settings_cls, field_name, field)
        source = variable.source(os.environ)
        return None if source is None else os.environ[source], field_name, False

    def __call__(self) -> dict[str, Any]:
        values = {
            name: self.get_field_value(field, name)[0]
            for name, field in self.settings_cls.model_fields.items()
        }
        return {name: value for name, value in values.items() if value is not None}


def variables(settings: type[ServiceSettings]) -> tuple[Variable, ...]:
    """Return every setting of the service: the engine's, then its own."""
    engine = [_engine_variable(settings, field, kind) for field, kind in _fields_of(StreamsConfig)]
    names = tuple(f"{prefix}_{_ATTACHMENT}".upper() for prefix in (settings.service, "streamcore"))
    engine.append(Variable(_ATTACHMENT, names, "", str, engine=True))
    own = [_own_variable(settings, name, field) for name, field in settings.model_fields.items()]
    fields = [variable.field for variable in (*engine, *own)]
    assert len(set(fields)) == len(fields), f"{settings.__name__} repeats a setting of the engine"
    return (*engine, *own)


def load(settings: type[S], *, offline: bool = False) -> tuple[S, StreamsConfig]:
    """Return the service's own settings and the engine's, from the environment.

    ``offline`` is for commands that talk to no broker: they need no KAFKA_URL.

    :raises ConfigError: with every problem there is, each by the name of its variable.
    """
    known = variables(settings)
    problems = list(_unknown(settings, known, os.environ))
    told: Sequence[str] = [f"KAFKA_URL is not set; name the brokers, as in {_NO_BROKER_URL}"]
    try:
        known = _attached(settings, known)
    except ConfigError as error:
        told = error.problems
        problems += () if offline else told
    engine, found = _engine_values([v for v in known if v.engine], settings)
    problems += found
    if not engine.get("kafka_url") and not engine.get("bootstrap_servers"):
        problems += () if offline else told
        engine["kafka_url"] = _NO_BROKER_URL  # so that the rest is checked as well
    own, config = None, None
    try:
        config = StreamsConfig(**engine)
    except ConfigError as error:
        problems += [_by_variable(problem, known) for problem in error.problems]
    try:
        own = settings()
    except ValidationError as error:
        problems += _own_problems(error, known)
    if problems or own is None or config is None:
        raise ConfigError(list(dict.fromkeys(problems)))
    return own, config


def _attached(settings: type[ServiceSettings], known: Sequence[Variable]) -> tuple[Variable, ...]:
    """Return the variables with the plain names of the attachment that this environment has.

    :raises ConfigError: if it has several, or not the one that is named.
    """
    by_field = {variable.field: variable for variable in known}
    named = by_field[_ATTACHMENT].source(os.environ)
    if named is not None:
        names = kafka_variables(os.environ, os.environ[named], named)
    elif any(by_field[field].source(os.environ) for field in ("kafka_url", "bootstrap_servers")):
        return _with_own_prefix(known)  # whoever names brokers wants no others to be looked for
    else:
        names = kafka_variables(shared_environment(settings))
    return _with_own_prefix(
        dataclasses.replace(variable, names=(*variable.names[:-1], names[variable.field]))
        if variable.field in names
        else variable
        for variable in known
    )


def _with_own_prefix(known: Iterable[Variable]) -> tuple[Variable, ...]:
    """Return them with the prefix that an attachment such as STREAMCORE_KAFKA has itself."""
    found = tuple(known)
    address = next(
        variable.source(os.environ) for variable in found if variable.field == "kafka_url"
    )
    own = f"{(address or '').removesuffix('_URL')}_PREFIX"
    return tuple(
        dataclasses.replace(variable, names=(*variable.names[:-1], own, variable.names[-1]))
        if address and variable.field == "prefix" and own not in variable.names
        else variable
        for variable in found
    )


def connection_variables(settings: type[ServiceSettings]) -> dict[str, str]:
    """Return the variable of each setting of the connection, by field: the one that decides in this
    environment, else the plain one of the attachment.

    :raises ConfigError: if it cannot be told which attachment is meant.
    """
    return {
        variable.field: variable.source(os.environ) or variable.names[-1]
        for variable in _attached(settings, variables(settings))
        if variable.field in _PLAIN_ENGINE_NAMES
    }


def by_variable(settings: type[ServiceSettings], message: str) -> str:
    """Return the message with those settings by their variables that only a start can find wrong.

    The engine itself knows its settings by their own names: who makes a ``StreamsConfig`` by hand
    has no others.
    """
    try:
        known = _attached(settings, variables(settings))
    except ConfigError:  # which of them is meant cannot be told
        return message
    names = {one.field: one.source(os.environ) or one.names[-1] for one in known}
    return _FOUND_AT_START.sub(lambda found: names[found[0]], message)


def shared_environment(settings: type[ServiceSettings]) -> dict[str, str]:
    """Return the environment without what is meant for one service: SINK_KAFKA_URL is the sink's
    address, and no attachment.
    """
    services = {settings.service, *(entry.name for entry in entry_points(group=ENTRY_POINTS))}
    prefixes = (ENGINE_PREFIX, *(f"{service}_".upper() for service in services))
    return {name: text for name, text in os.environ.items() if not name.startswith(prefixes)}


def _fields_of(config: type[Any]) -> list[tuple["dataclasses.Field[Any]", Any]]:
    hints = typing.get_type_hints(config)
    return [(field, hints[field.name]) for field in dataclasses.fields(config) if field.init]


def _engine_variable(
    settings: type[ServiceSettings], field: "dataclasses.Field[Any]", kind: object
) -> Variable:
    names = [f"{settings.service}_{field.name}".upper()]
    if field.name not in _PER_SERVICE:
        names.append(f"{ENGINE_PREFIX}{field.name.upper()}")
    if field.name in _PLAIN_ENGINE_NAMES:
        names.append(_PLAIN_ENGINE_NAMES[field.name])
    default = settings.engine_defaults.get(field.name, _default_of(field))
    return Variable(field.name, tuple(names), default, kind, engine=True)


def _default_of(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _own_variable(settings: type[ServiceSettings], name: str, field: FieldInfo) -> Variable:
    names = [f"{settings.service}_{name}".upper()]
    if name in settings.plain_names:
        names.append(settings.plain_names[name])
    default = field.get_default(call_default_factory=True, validated_data={})
    return Variable(name, tuple(names), default, field.annotation, engine=False)


def _unknown(
    settings: type[ServiceSettings], known: Sequence[Variable], environment: Mapping[str, str]
) -> Iterator[str]:
    right = {name for variable in known for name in variable.names}
    prefixes = (ENGINE_PREFIX, f"{settings.service}_".upper())
    attached = [f"{prefix}KAFKA" for prefix in prefixes if environment.get(f"{prefix}KAFKA_URL")]
    right.update(f"{attachment}_PREFIX" for attachment in attached)  # an add-on's, no setting
    for name in sorted(environment):
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), None)
        if prefix is None or name in right:
            continue
        setting = name.removeprefix(prefix).lower()
        if setting in _PER_SERVICE:
            per_service = f"{settings.service}_{setting}".upper()
            yield f"{name} would be the same for all services; set {per_service}"
        else:
            near = _nearest(prefix, setting, known)
            hint = f"did you mean {near}?" if near else ".env.example lists all there are"
            yield f"{name} is not a setting; {hint}"


def _nearest(prefix: str, setting: str, known: Sequence[Variable]) -> str | None:
    """Return the name that was probably meant, with the prefix that was used where it exists.

    The prefix is left out of the comparison: it would make all names alike.
    """
    by_field = {variable.field: variable.names for variable in known}
    for field in difflib.get_close_matches(setting, by_field, n=1):
        names = by_field[field]
        return next((name for name in names if name.startswith(prefix)), names[0])
    return None


def _engine_values(
    known: Sequence[Variable], settings: type[ServiceSettings]
) -> tuple[dict[str, Any], list[str]]:
    """Return what is set or suits the place, and what cannot be read; the rest has defaults."""
    values, problems = dict(settings.engine_defaults), []
    for variable in known:
        source = variable.source(os.environ)
        if source is None or variable.field == _ATTACHMENT:
            continue
        try:
            values[variable.field] = _parsed(os.environ[source], variable.kind)
        except ValidationError as error:
            problems.append(variable.complaint(os.environ, error.errors()[0]["msg"]))
        except ValueError:
            problems.append(variable.complaint(os.environ, "it must be a JSON object"))
    return {**engine_defaults(os.environ, values.get("num_stream_threads", 1)), **values}, problems


def _parsed(text: str, kind: Any) -> Any:
    origin = typing.get_origin(kind)
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    if not is_mapping:
        return TypeAdapter(kind).validate_python(text)
    items = json.loads(text)
    if not isinstance(items, dict):
        raise ValueError(f"a JSON {type(items).__name__}")
    return {key: item if isinstance(item, str) else json.dumps(item) for key, item in items.items()}


def _by_variable(problem: str, known: Sequence[Variable]) -> str:
    """Return the problem with settings that came from the environment named as they are there."""
    for variable in known:
        source = variable.source(os.environ)
        if source is not None:
            problem = re.sub(rf"\b{variable.field}\b( \({source}\))?", source, problem)
        elif variable.field in _PLAIN_ENGINE_NAMES:  # what is missing has a name, too
            hint = f"{variable.field} ({_PLAIN_ENGINE_NAMES[variable.field]})"
            problem = problem.replace(hint, variable.names[-1])
    return problem


def _own_problems(error: ValidationError, known: Sequence[Variable]) -> list[str]:
    by_field = {variable.field: variable for variable in known}
    problems = []
    for detail in error.errors(include_url=False, include_input=False):
        reason = detail["msg"].removeprefix("Value error, ")
        field = str(detail["loc"][0]) if detail["loc"] else ""
        problems.append(
            by_field[field].complaint(os.environ, reason)
            if field in by_field
            else _by_variable(reason, known)
        )
    return problems
