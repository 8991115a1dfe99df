/**
 * Names: snake_case on the wire, camelCase here.
 *
 * What belongs to the user (input, config, result, env, labels) passes as it
 * is, at any depth.
 */
const OPAQUE = new Set(["input", "config", "result", "env", "labels"]);

function rename(value: unknown, one: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((x) => rename(x, one));
  if (typeof value !== "object" || value === null) return value;
  const out: Record<string, unknown> = {};
  for (const [name, x] of Object.entries(value))
    out[one(name)] = OPAQUE.has(name) ? x : rename(x, one);
  return out;
}

/** memoryMib becomes memory_mib. */
export function toWire(value: object): Record<string, unknown> {
  return rename(value, (name) =>
    name.replace(/[A-Z]/g, (c) => "_" + c.toLowerCase()),
  ) as Record<string, unknown>;
}

/** exit_code becomes exitCode. */
export function fromWire<T>(value: unknown): T {
  return rename(value, (name) =>
    name.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase()),
  ) as T;
}
