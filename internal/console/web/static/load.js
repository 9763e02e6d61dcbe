// A hook for what is read from the server.
import { useEffect, useState } from "./html.js";

// load returns what an asynchronous function returns, as {value} or {error}; {} before. The function is called again
// when its inputs change, and its signal is aborted when nobody waits for it any more. Until it has returned again, the
// answer is the one before: a component whose answer to another question must not be seen has that question as its key.
export function load(f, inputs) {
  const [answer, setAnswer] = useState({});
  useEffect(() => {
    const abort = new AbortController();
    f(abort.signal).then(
      (value) => abort.signal.aborted || setAnswer({ value }),
      (error) => abort.signal.aborted || setAnswer({ error }),
    );
    return () => abort.abort();
  }, inputs);
  return answer;
}
