"""The same with the package kubernetes, on a server that has the definition from the start."""

import os
import unittest

from kubernetes import client, config, watch

from plinth_server import PlinthServer

DEFINITIONS = os.path.join(os.path.dirname(__file__), "..", "widgets.yaml")
WIDGETS = ("example.com", "v1", "default", "widgets")


class KubernetesClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = PlinthServer("--manifests", DEFINITIONS)
        cls.addClassCleanup(cls.server.stop)
        cls.api = config.new_client_from_config_dict(cls.server.kubeconfig())
        cls.addClassCleanup(cls.api.close)

    def test_watch(self):
        objects = client.CustomObjectsApi(self.api)
        version = objects.list_namespaced_custom_object(*WIDGETS)["metadata"]["resourceVersion"]
        objects.create_namespaced_custom_object(
            *WIDGETS,
            {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}},
        )
        objects.patch_namespaced_custom_object(*WIDGETS, "w", {"spec": {"size": 2}})

        seen, stream = [], watch.Watch()
        for event in stream.stream(
            objects.list_namespaced_custom_object, *WIDGETS, resource_version=version, timeout_seconds=30
        ):
            seen.append((event["type"], event["object"]["spec"]["size"]))
            if len(seen) == 2:
                stream.stop()
        self.assertEqual(seen, [("ADDED", 1), ("MODIFIED", 2)])

    def test_namespaces(self):
        names = [item.metadata.name for item in client.CoreV1Api(self.api).list_namespace().items]
        self.assertIn("default", names)


if __name__ == "__main__":
    unittest.main()
