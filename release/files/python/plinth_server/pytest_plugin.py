"""The fixture plinth_server: a server of its own for each test.

    @pytest.mark.plinth("--manifests", "config/crd")
    def test_widgets(plinth_server):
        plinth_server.request("GET", "/api/v1/namespaces")
"""

import pytest

from . import PlinthServer


def pytest_configure(config):
    config.addinivalue_line("markers", "plinth(*flags): flags of plinth test-server for the fixture plinth_server")


@pytest.fixture
def plinth_server(request):
    """A running server, which ends with the test. The marker plinth has its flags."""
    flags = [flag for marker in request.node.iter_markers("plinth") for flag in marker.args]
    with PlinthServer(*flags) as server:
        yield server
