"""The served project, one for all tests of the admin."""

from collections.abc import Iterator

import pytest

from tests.django_admin.site import Site


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("django")) as found:
        yield found
