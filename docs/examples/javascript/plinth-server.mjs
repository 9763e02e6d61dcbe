// A Kubernetes API server for tests: `plinth test-server`.
//
// Copy this file beside your tests. It needs Node.js 20 and no package, and the program plinth: on the PATH, or where
// the environment variable PLINTH says.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { request } from 'node:https'
import { createInterface } from 'node:readline'

// startPlinth starts a server. It ends with stop(), or with this process, however that ends.
export async function startPlinth(...flags) {
  const program = process.env.PLINTH ?? 'plinth'
  // Standard error is that of the tests: the server says there why it does not start.
  const child = spawn(program, ['test-server', '--ready-json', ...flags], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(child, 'exit')
  const line = await Promise.race([
    once(createInterface({ input: child.stdout }), 'line').then(([text]) => text),
    ended.then(([status]) => {
      throw new Error(`plinth test-server ended with status ${status}`)
    }),
  ])
  child.unref() // this process may end, and take the server along
  child.stdout.unref()
  return new PlinthServer(JSON.parse(line), async () => {
    child.ref()
    child.kill()
    await ended
  })
}

class PlinthServer {
  constructor({ host, ca, token }, stop) {
    Object.assign(this, { host, ca, token, stop })
  }

  // kubeconfig is the content of a kubeconfig, for clients that want one.
  kubeconfig() {
    const authority = Buffer.from(this.ca).toString('base64')
    return {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'test', cluster: { server: this.host, 'certificate-authority-data': authority } }],
      users: [{ name: 'admin', user: { token: this.token } }],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'admin' } }],
      'current-context': 'test',
    }
  }

  // request sends a request and returns the status and the object of the response.
  async request(method, path, body, contentType = 'application/json') {
    const response = await this.#open(method, path, body, contentType)
    let text = ''
    for await (const part of response.setEncoding('utf8')) text += part
    return { status: response.statusCode, object: JSON.parse(text) }
  }

  // watch yields the events of a watch, each with its type and object. The watch ends when the loop over them ends.
  async *watch(path) {
    const response = await this.#open('GET', path)
    try {
      for await (const line of createInterface({ input: response })) yield JSON.parse(line)
    } finally {
      response.destroy()
    }
  }

  async #open(method, path, body, contentType = 'application/json') {
    const sent = request(this.host + path, {
      method,
      ca: this.ca,
      headers: { authorization: `Bearer ${this.token}`, 'content-type': contentType },
    })
    sent.end(body === undefined ? undefined : JSON.stringify(body))
    const [response] = await once(sent, 'response')
    return response
  }
}
