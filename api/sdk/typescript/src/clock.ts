/** The one clock of a client: time, waiting and chance, so that tests can move
 * all three.  Everything is in milliseconds. */
export interface Clock {
  /** Now, since 1970. */
  unix(): number;
  /** Only differences of it mean something. */
  monotonic(): number;
  /** A number from 0 to `upper`, by chance. */
  uniform(upper: number): number;
  /** Rejects with the signal's reason when it is aborted meanwhile. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

export const systemClock: Clock = {
  unix: () => Date.now(),
  monotonic: () => performance.now(),
  uniform: (upper) => Math.random() * upper,
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      const give_up = (): void => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", give_up);
        resolve();
      }, ms);
      if (signal?.aborted) give_up();
      signal?.addEventListener("abort", give_up, { once: true });
    }),
};
