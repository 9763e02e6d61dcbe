// A definition, an object and a watch, without any package: node --test

import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'

import { startPlinth } from './plinth-server.mjs'

const widgets = '/apis/example.com/v1/namespaces/default/widgets'

const definition = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'widgets.example.com' },
  spec: {
    group: 'example.com',
    names: { kind: 'Widget', plural: 'widgets' },
    scope: 'Namespaced',
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        schema: {
          openAPIV3Schema: {
            type: 'object',
            properties: { spec: { type: 'object', properties: { size: { type: 'integer', minimum: 1 } } } },
          },
        },
      },
    ],
  },
}

const widget = (size) => ({
  apiVersion: 'example.com/v1',
  kind: 'Widget',
  metadata: { name: 'w' },
  spec: { size },
})

let server

beforeEach(async () => { // a server for each test: it takes some hundredths of a second
  server = await startPlinth()
  const created = await server.request('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', definition)
  assert.equal(created.status, 201)
})

afterEach(() => server.stop())

test('a watch sends what has happened since a version', async () => {
  const version = (await server.request('GET', widgets)).object.metadata.resourceVersion
  await server.request('POST', widgets, widget(1))
  await server.request('PATCH', `${widgets}/w`, { spec: { size: 2 } }, 'application/merge-patch+json')
  await server.request('DELETE', `${widgets}/w`)

  const seen = []
  for await (const event of server.watch(`${widgets}?watch=true&resourceVersion=${version}`)) {
    seen.push([event.type, event.object.spec.size])
    if (seen.length === 3) break
  }
  assert.deepEqual(seen, [['ADDED', 1], ['MODIFIED', 2], ['DELETED', 2]])
})

test('an invalid widget is refused', async () => {
  const { status, object } = await server.request('POST', widgets, widget(0))
  assert.equal(status, 422)
  assert.match(object.message, /should be greater than or equal to 1/)
})
