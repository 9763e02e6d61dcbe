// Lists in chunks and watches with resume, by the JavaScript client. The kubeconfig is the argument.

import assert from 'node:assert/strict'
import { CoreV1Api, KubeConfig, Watch, makeInformer } from '@kubernetes/client-node'

const objects = 30
const chunk = 7
const namespace = 'languages-javascript'

const config = new KubeConfig()
config.loadFromFile(process.argv[2])
const core = config.makeApiClient(CoreV1Api)

const nameOf = (i) => `c${String(i).padStart(2, '0')}`
const configMap = (i, value) => ({
  metadata: { name: nameOf(i), labels: { parity: i % 2 ? 'odd' : 'even' } },
  data: { value },
})

// chunks: all names, page by page, while one object goes and one comes behind the first page.
async function chunks() {
  const names = []
  const versions = new Set()
  let token
  do {
    const page = await core.listNamespacedConfigMap({ namespace, limit: chunk, _continue: token })
    names.push(...page.items.map((item) => item.metadata.name))
    versions.add(page.metadata.resourceVersion)
    if (token === undefined) {
      await core.deleteNamespacedConfigMap({ name: 'c20', namespace })
      await core.createNamespacedConfigMap({ namespace, body: configMap(77, 'late') })
    }
    token = page.metadata._continue
  } while (token)
  assert.deepEqual(names, Array.from({ length: objects }, (_, i) => nameOf(i)))
  assert.equal(versions.size, 1)
}

// some watches from a version until it has seen so many events, and cuts the connection.
function some(version, count) {
  const path = `/api/v1/namespaces/${namespace}/configmaps`
  return new Promise((resolve, reject) => {
    const seen = []
    let controller
    let over = false
    const end = (error) => {
      if (over) return
      over = true
      controller?.abort()
      error ? reject(error) : resolve(seen)
    }
    new Watch(config)
      .watch(
        path,
        { resourceVersion: version, timeoutSeconds: 20 },
        (type, object) => {
          if (over) return
          seen.push([type, object.metadata.name, object.data.value, object.metadata.resourceVersion])
          if (seen.length === count) end()
        },
        end,
      )
      .then((c) => {
        controller = c
        if (over) c.abort()
      })
  })
}

// resume: watches that are cut after three events, each going on where the last one was, lose nothing and see nothing twice.
async function resume() {
  let version = (await core.listNamespacedConfigMap({ namespace })).metadata.resourceVersion
  const writes = Array.from({ length: 20 }, (_, i) => [nameOf(i % 10), `v${i}`])
  const writing = (async () => {
    for (const [name, value] of writes) {
      const body = configMap(Number(name.slice(1)), value)
      await core.replaceNamespacedConfigMap({ name, namespace, body })
    }
  })()
  const seen = []
  while (seen.length < writes.length) {
    for (const [type, name, value, at] of await some(version, Math.min(3, writes.length - seen.length))) {
      assert.equal(type, 'MODIFIED')
      seen.push([name, value])
      version = at
    }
  }
  await writing
  assert.deepEqual(seen, writes)
}

// informed: the client's informer ends in the state of the server.
async function informed() {
  const list = () => core.listNamespacedConfigMap({ namespace })
  const informer = makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list)
  const gone = new Promise((resolve) => informer.on('delete', (o) => o.metadata.name === 'c05' && resolve()))
  let stopping = false
  informer.on('error', (error) => {
    if (!stopping) throw error // stopping tells of itself here
  })
  await informer.start()
  await core.deleteNamespacedConfigMap({ name: 'c05', namespace })
  await gone
  const cached = informer.list(namespace).map((o) => o.metadata.name).sort()
  assert.deepEqual(cached, (await list()).items.map((o) => o.metadata.name))
  stopping = true
  await informer.stop()
}

await core.createNamespace({ body: { metadata: { name: namespace } } })
for (let i = 0; i < objects; i++) await core.createNamespacedConfigMap({ namespace, body: configMap(i, 'first') })
await chunks()
await resume()
await informed()
await assert.rejects(core.listNamespacedConfigMap({ namespace, _continue: 'garbage' }), (error) => error.code === 400)
await core.deleteNamespace({ name: namespace })
console.log('javascript: chunks, resumed watches and informers are right')
