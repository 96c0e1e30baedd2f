"""The contract on a database whose settings are all unlike the usual ones: nothing of ours depends on them."""

import functools

import psycopg
import pytest

from taskharbor.conformance import DriverCases
from taskharbor.drivers.postgres import PostgresDriver
from tests.drivers import versions
from tests.drivers.test_conformance_postgres import damage, damage_field
from tests.servers import postgres

SETTINGS = {
    # isolation and time limits
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "lock_timeout": "2s",
    "statement_timeout": "10s",
    "idle_session_timeout": "3s",
    "idle_in_transaction_session_timeout": "5s",
    # how text is read and written
    "search_path": "nowhere",
    "timezone": "Asia/Kathmandu",
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "client_encoding": "LATIN1",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "array_nulls": "off",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "transform_null_equals": "on",
    "quote_all_identifiers": "on",
    "plpgsql.variable_conflict": "use_column",
    # what a planner may use
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_bitmapscan": "off",
    "enable_tidscan": "off",
    "enable_nestloop": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_hashagg": "off",
    "enable_sort": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "plan_cache_mode": "force_custom_plan",
    "from_collapse_limit": "1",
    "join_collapse_limit": "1",
    "geqo_threshold": "2",
    "work_mem": "64kB",
    "jit": "on",
    "jit_above_cost": "0",
    "jit_inline_above_cost": "0",
    "jit_optimize_above_cost": "0",
    "force_parallel_mode": "on",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
    "min_parallel_table_scan_size": "0",
    "min_parallel_index_scan_size": "0",
}


@functools.cache
def store() -> str:
    """The name of a database with these settings."""
    name = postgres.shared().database()
    with psycopg.connect(postgres.shared().address(), autocommit=True) as connection:
        for setting, value in SETTINGS.items():
            connection.execute(f"alter database {name} set {setting} = '{value}'".encode())
    return name


def address() -> str:
    return postgres.shared().address(store())


def quick() -> str:
    """The same for what only prepares a test, without what would make that slow."""
    return f"{address()}?options=-cjit%3Doff%20-cmax_parallel_workers_per_gather%3D0"


@pytest.mark.lane("hostile-postgres")
@pytest.mark.left_to("full", except_for=versions.every_call)
class TestHostile(DriverCases):
    def make_driver(self):
        postgres.empty(quick())
        return PostgresDriver(address())

    def damage(self, driver, id, how):
        damage(quick(), id, how)

    def damage_field(self, driver, id, field, kind):
        return damage_field(quick(), id, field, kind)


@functools.cache
def strict() -> str:
    """The address of a database whose transactions are serializable unless they say otherwise."""
    name = postgres.shared().database()
    with psycopg.connect(postgres.shared().address(), autocommit=True) as connection:
        connection.execute(f"alter database {name} set default_transaction_isolation = 'serializable'".encode())
    return postgres.shared().address(name)


def about_others(case: str) -> bool:
    """Cases in which a call has to see what others have stored since it began."""
    return case.removeprefix("test_").startswith(("concurrency_", "spawn_handover"))


@pytest.mark.lane("hostile-postgres")
@pytest.mark.left_to("full", except_for=about_others)
class TestStrictSessions(DriverCases):
    """The sessions are not ours to change, as behind pgbouncer: calls say their isolation themselves."""

    def make_driver(self):
        postgres.empty(strict())
        return PostgresDriver(f"{strict()}?pgbouncer=1")

    def damage(self, driver, id, how):
        damage(strict(), id, how)

    def damage_field(self, driver, id, field, kind):
        return damage_field(strict(), id, field, kind)
