/** Writes an answer to a file, by way of another beside it: it appears whole
 * and is what its SHA-256 says, or nothing is left.  Apart, since it needs a
 * file system. */
import { createHash } from "node:crypto";
import { open, rename, rm } from "node:fs/promises";

export async function save(
  response: Response,
  path: string,
  sha256: string,
): Promise<void> {
  const temporary = `${path}.${crypto.randomUUID().slice(0, 8)}`;
  const hash = createHash("sha256");
  const file = await open(temporary, "wx");
  try {
    try {
      const reader = response.body?.getReader();
      for (;;) {
        const piece = await reader?.read();
        if (!piece || piece.done) break;
        hash.update(piece.value);
        await file.writeFile(piece.value);
      }
    } finally {
      await file.close();
    }
    const got = hash.digest("hex");
    if (got !== sha256.toLowerCase())
      throw new Error(`the content has the SHA-256 ${got}, not ${sha256}`);
    await rename(temporary, path);
  } finally {
    await rm(temporary, { force: true });
  }
}
