// A Kubernetes API server for tests, with the program that it is: startPlinth starts one.

import { program } from './program.mjs'

process.env.PLINTH ??= program() // for startPlinth; another program that is named there wins

export { startPlinth } from './server.mjs'
export { program }
