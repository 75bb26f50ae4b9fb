"""app.json says what Heroku understands, and what the Procfile, the settings and bin/setup say."""

import json
from typing import Any

from tests.deploy.buildpack import ROOT

import aggregator.settings
import ingest.settings
import sink.settings
from devstack.procfile import read_procfile
from streamcore.heroku import plan_named
from streamcore.settings import ServiceSettings, variables

SETTINGS: list[type[ServiceSettings]] = [
    ingest.settings.Settings,
    aggregator.settings.Settings,
    sink.settings.Settings,
]

# What the platform's schema knows, and what a value of it is.
KEYS: dict[str, type] = {
    "name": str, "description": str, "keywords": list, "website": str, "repository": str,
    "logo": str, "success_url": str, "scripts": dict, "env": dict, "formation": dict,
    "addons": list, "buildpacks": list, "stack": str, "image": str, "environments": dict,
}  # fmt: skip
ENV_KEYS = {"description", "value", "required", "generator"}
ADDON_KEYS = {"plan", "as", "options"}
FORMATION_KEYS = {"quantity", "size"}
SIZES = {"eco", "basic", "standard-1x", "standard-2x", "performance-m", "performance-l"}
STACKS = {"heroku-22", "heroku-24", "heroku-26"}

APP: dict[str, Any] = json.loads((ROOT / "app.json").read_text(encoding="utf-8"))


def test_every_key_is_one_that_the_platform_knows() -> None:
    for key, value in APP.items():
        assert isinstance(value, KEYS[key]), key
    assert APP["stack"] in STACKS
    assert all(set(each) == {"url"} for each in APP["buildpacks"])
    for addon in APP["addons"]:
        assert set(addon) <= ADDON_KEYS
    for process in APP["formation"].values():
        assert set(process) <= FORMATION_KEYS
        assert process["size"] in SIZES
    for variable in APP["env"].values():
        assert set(variable) <= ENV_KEYS
        assert isinstance(variable["value"], str)


def test_all_dynos_are_of_one_kind() -> None:
    """Eco and Basic dynos cannot be mixed with others in one app."""
    assert len({process["size"] for process in APP["formation"].values()}) == 1


def test_it_starts_the_workers_of_the_procfile_with_the_stock_buildpack_alone() -> None:
    assert tuple(APP["formation"]) == read_procfile(ROOT / "Procfile").services
    assert all(process["quantity"] == 1 for process in APP["formation"].values())
    assert APP["buildpacks"] == [{"url": "heroku/python"}]


def test_the_addons_are_attached_under_the_names_that_the_services_read() -> None:
    plans = {addon["as"]: addon["plan"] for addon in APP["addons"]}
    assert set(plans) == {"KAFKA", "DATABASE"}
    assert plan_named(plans["KAFKA"]).shared
    assert plans["DATABASE"].startswith("heroku-postgresql:")


def test_its_variables_are_settings_and_the_first_boot_waits_for_topics() -> None:
    known = {name for settings in SETTINGS for v in variables(settings) for name in v.names}
    assert set(APP["env"]) <= known
    assert APP["env"]["STREAMCORE_WAIT_FOR_TOPICS"]["value"] == "true"
