"""A definition, an object and a watch, with the standard library alone: python3 -m unittest test_widgets"""

import unittest
import urllib.error

from plinth_server import PlinthServer

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Widget", "plural": "widgets"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}}
                        },
                    }
                },
            }
        ],
    },
}


def widget(size):
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": size}}


class WidgetTest(unittest.TestCase):
    def setUp(self):  # a server for each test: it takes some hundredths of a second
        self.server = PlinthServer()
        self.addCleanup(self.server.stop)
        self.server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)

    def test_watch(self):
        empty = self.server.request("GET", WIDGETS)
        version = empty["metadata"]["resourceVersion"]
        self.server.request("POST", WIDGETS, widget(1))
        self.server.request("PATCH", WIDGETS + "/w", {"spec": {"size": 2}}, "application/merge-patch+json")
        self.server.request("DELETE", WIDGETS + "/w")

        events = self.server.watch(f"{WIDGETS}?watch=true&resourceVersion={version}")
        seen = [(kind, item["spec"]["size"]) for kind, item in (next(events), next(events), next(events))]
        events.close()
        self.assertEqual(seen, [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)])

    def test_validation(self):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.server.request("POST", WIDGETS, widget(0))
        self.assertEqual(refused.exception.code, 422)
        self.assertIn("should be greater than or equal to 1", refused.exception.read().decode())
        refused.exception.close()


if __name__ == "__main__":
    unittest.main()
