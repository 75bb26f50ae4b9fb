"""The local stack: a Kafka broker, a PostgreSQL server and the services of the Procfile.

Nothing here is needed in production. The tests take their servers from it
(`devstack.pytest_plugin`), and `make run` is `python -m devstack run`.
"""

__version__ = "0.1.0"
