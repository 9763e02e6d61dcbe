#!/usr/bin/env node
// The command plinth: the program of the package for this platform.

import { spawn } from 'node:child_process'
import { program } from '../program.mjs'

const child = spawn(program(), process.argv.slice(2), { stdio: 'inherit' })
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
child.on('exit', (status, signal) => process.exit(signal ? 1 : status))
