"""A Kubernetes API server for tests: `plinth test-server`.

Copy this file beside your tests. It needs Python 3.9 and its standard library, and the program plinth: on the PATH, or
where the environment variable PLINTH says.
"""

import base64
import json
import os
import ssl
import subprocess
import urllib.request


class PlinthServer:
    """A running server. It ends with stop(), or with this process, however that ends."""

    def __init__(self, *flags):
        program = os.environ.get("PLINTH", "plinth")
        # Standard error is that of the tests: the server says there why it does not start.
        self._process = subprocess.Popen([program, "test-server", "--ready-json", *flags], stdout=subprocess.PIPE)
        line = self._process.stdout.readline()
        if not line:
            self._process.stdout.close()
            raise RuntimeError(f"plinth test-server ended with status {self._process.wait()}")
        ready = json.loads(line)
        self.host, self.ca, self.token = ready["host"], ready["ca"], ready["token"]
        self._tls = ssl.create_default_context(cadata=self.ca)

    def stop(self):
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def kubeconfig(self):
        """The content of a kubeconfig, for clients that want one."""
        authority = base64.b64encode(self.ca.encode()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.host, "certificate-authority-data": authority}}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }

    def request(self, method, path, body=None, content_type="application/json"):
        """Sends a request and returns the object of the response. An error is a urllib.error.HTTPError."""
        with self._open(method, path, body, content_type) as response:
            return json.load(response)

    def watch(self, path):
        """Yields the events of a watch as pairs of a type and an object."""
        with self._open("GET", path) as response:
            for line in response:
                event = json.loads(line)
                yield event["type"], event["object"]

    def _open(self, method, path, body=None, content_type="application/json"):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        request = urllib.request.Request(self.host + path, data, headers, method=method)
        return urllib.request.urlopen(request, timeout=30, context=self._tls)
