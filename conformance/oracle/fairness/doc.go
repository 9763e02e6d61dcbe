// Package fairness compares the queues of plinth/internal/fairness with those of
// k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset.
//
// Glossary. A trace is a random sequence of steps: a request arrives, ends, gives up, or the configuration changes,
// with some time between. A log is what happened in a trace: which requests were refused, and in which order the others
// were dispatched. The logs of both have to be equal. Each trace has a number, so that a failure can be reproduced:
//
//	go test ./oracle/fairness -traces 100000 -seed 7
//
// Differences that are intended, which the traces avoid:
//
//   - Upstream removes a queue in excess once for each of its requests that is in its final time, by an index that is
//     out of date after the first time, so that other queues are lost. Traces with final times do not remove queues.
package fairness
