"""Lists in chunks and watches with resume, by the Python client. The kubeconfig is the argument."""

import sys
import threading

from kubernetes import client, config, watch

OBJECTS, CHUNK = 30, 7
NAMESPACE = "languages-python"


def config_map(i, value):
    return client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name=f"c{i:02}", labels={"parity": "even" if i % 2 == 0 else "odd"}),
        data={"value": value},
    )


def chunks(core):
    """All names, page by page, while one object goes and one comes behind the first page."""
    names, token, versions, remaining = [], None, set(), []
    while True:
        page = core.list_namespaced_config_map(NAMESPACE, limit=CHUNK, _continue=token)
        names += [item.metadata.name for item in page.items]
        versions.add(page.metadata.resource_version)
        remaining.append(page.metadata.remaining_item_count)
        if token is None:
            core.delete_namespaced_config_map("c20", NAMESPACE)
            core.create_namespaced_config_map(NAMESPACE, config_map(77, "late"))
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"c{i:02}" for i in range(OBJECTS)], names
    assert len(versions) == 1, versions
    assert remaining == [23, 16, 9, 2, None], remaining


def resume(core):
    """A watch that is cut after three events and goes on from the last version it saw, with nothing lost or twice."""
    start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    writes = [(f"c{i % 10:02}", f"v{i}") for i in range(20)]

    def write():
        for name, value in writes:
            core.patch_namespaced_config_map(name, NAMESPACE, {"data": {"value": value}})

    writer = threading.Thread(target=write)
    writer.start()
    seen, version = [], start
    while len(seen) < len(writes):
        stream = watch.Watch()
        taken = 0
        for event in stream.stream(
            core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=20
        ):
            assert event["type"] == "MODIFIED", event
            item = event["object"]
            seen.append((item.metadata.name, item.data["value"]))
            version = item.metadata.resource_version
            taken += 1
            if taken == 3:
                stream.stop()
        assert taken > 0, f"the watch ended after {len(seen)} events"
    writer.join()
    assert seen == writes, seen


def selectors(core):
    odd = core.list_namespaced_config_map(NAMESPACE, label_selector="parity in (odd)", field_selector="metadata.name!=c01")
    assert [i.metadata.name for i in odd.items][:3] == ["c03", "c05", "c07"], odd
    try:
        core.list_namespaced_config_map(NAMESPACE, _continue="garbage")
    except client.ApiException as e:
        assert e.status == 400, e
    else:
        raise AssertionError("a continue token that is none was taken")


def main():
    config.load_kube_config(sys.argv[1])
    core = client.CoreV1Api()
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    for i in range(OBJECTS):
        core.create_namespaced_config_map(NAMESPACE, config_map(i, "first"))
    chunks(core)
    resume(core)
    selectors(core)
    core.delete_namespace(NAMESPACE)
    print("python: chunks, resumed watches and selectors are right")


main()
