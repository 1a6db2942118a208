"""What every test shares: hypothesis settings, and the option that brings in a user's shape."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "klip",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
settings.load_profile("klip")


def pytest_addoption(parser):
    parser.addoption(
        "--shape", action="append", default=[], help="a shape to test as if it were shipped"
    )
