// The same with the package @kubernetes/client-node, on a server that has the definition from the start.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { CoreV1Api, CustomObjectsApi, KubeConfig, Watch } from '@kubernetes/client-node'

import { startPlinth } from './plinth-server.mjs'

const widgets = { group: 'example.com', version: 'v1', namespace: 'default', plural: 'widgets' }
const config = new KubeConfig()
let server

before(async () => {
  server = await startPlinth('--manifests', fileURLToPath(new URL('../widgets.yaml', import.meta.url)))
  config.loadFromString(JSON.stringify(server.kubeconfig()))
})

after(() => server.stop())

test('a watch sends what has happened since a version', async () => {
  const objects = config.makeApiClient(CustomObjectsApi)
  const list = await objects.listNamespacedCustomObject(widgets)
  await objects.createNamespacedCustomObject({
    ...widgets,
    body: { apiVersion: 'example.com/v1', kind: 'Widget', metadata: { name: 'w' }, spec: { size: 1 } },
  })
  await objects.deleteNamespacedCustomObject({ ...widgets, name: 'w' })

  const seen = []
  await new Promise((resolve, reject) => {
    let controller
    const path = '/apis/example.com/v1/namespaces/default/widgets'
    const query = { resourceVersion: list.metadata.resourceVersion }
    const next = (type, object) => {
      seen.push([type, object.spec.size])
      if (seen.length === 2) {
        resolve()
        controller?.abort()
      }
    }
    new Watch(config).watch(path, query, next, reject).then((c) => {
      controller = c
      if (seen.length === 2) c.abort()
    }, reject)
  })
  assert.deepEqual(seen, [['ADDED', 1], ['DELETED', 1]])
})

test('namespaces are there', async () => {
  const namespaces = await config.makeApiClient(CoreV1Api).listNamespace()
  assert.ok(namespaces.items.some((item) => item.metadata.name === 'default'))
})
