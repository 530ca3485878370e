/** Places that keep a saved state: a file in Node, IndexedDB in the browser. */

import { BundleError, OptionsError, reason } from "./errors.js";
import { nodeFiles, readRegular } from "./sources.js";

/**
 * A place for one saved state. `write` replaces the whole content or fails and leaves it as it was;
 * `read` gives undefined where nothing was written.
 * @typedef {{read(): Promise<Uint8Array | undefined>, write(content: Uint8Array): Promise<void>,
 *   name?: string}} Store
 */

/**
 * The store that a path or a store stands for.
 * @param {string | Store} place
 * @returns {Store}
 */
export function store(place) {
  if (typeof place === "string") return fileStore(place);
  if (typeof place?.write === "function" && typeof place?.read === "function") return place;
  throw new OptionsError(`${String(place)} is no place to save to`, {
    hint: "give a path (Node), indexedDBStore(key), or an object with read and write",
  });
}

/**
 * A file, replaced whole or not at all. Node only.
 * @param {string} path
 * @returns {Store}
 */
export function fileStore(path) {
  const node = nodeFiles();
  if (!node) {
    throw new OptionsError(`${path}: a page cannot write files`, {
      hint: "use indexedDBStore(key)",
    });
  }
  const read = async () => {
    try {
      return await readRegular(node.fs, path);
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code === "ENOENT") return undefined;
      throw new BundleError(`${path}: cannot be read: ${reason(error)}`, { cause: error });
    }
  };
  return { name: path, read, write: (content) => replaceFile(path, content) };
}

/**
 * Make `path` a file of `content`, or leave it as it is. A killed process leaves a hidden
 * `.NAME.PID-*.tmp` beside it, which the next call for the same path removes.
 * @param {string} path
 * @param {Uint8Array} content
 */
export async function replaceFile(path, content) {
  const {
    fs,
    path: paths,
    process,
  } = /** @type {NonNullable<ReturnType<typeof nodeFiles>>} */ (nodeFiles());
  const target = await fs.realpath(path).catch(() => paths.resolve(path));
  const { dir, base } = paths.parse(target);
  const temporary = paths.join(dir, temporaryName(base, process.pid));
  try {
    await removeStale(dir, base);
    await writeSynced(temporary, content);
    await fs.rename(temporary, target);
  } catch (error) {
    await fs.rm(temporary, { force: true });
    throw new BundleError(`${path} cannot be written: ${reason(error)}`, { cause: error });
  }
  await syncFolder(dir);
}

/**
 * A name for what is being written, which nobody else chooses; `removeStale` knows it.
 * @param {string} base
 * @param {number} pid
 */
function temporaryName(base, pid) {
  return `.${base}.${pid}-${crypto.getRandomValues(new Uint32Array(2)).join("")}.tmp`;
}

/**
 * @param {string} path
 * @param {Uint8Array} content
 */
async function writeSynced(path, content) {
  const { fs } = /** @type {NonNullable<ReturnType<typeof nodeFiles>>} */ (nodeFiles());
  const file = await fs.open(path, "wx");
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
}

/**
 * Put a folder's entries on the disk, where the system can do that.
 * @param {string} folder
 */
async function syncFolder(folder) {
  const node = nodeFiles();
  if (!node || node.process.platform === "win32") return;
  const handle = await node.fs.open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * @param {string} folder
 * @param {string} base
 */
async function removeStale(folder, base) {
  const { fs, path } = /** @type {NonNullable<ReturnType<typeof nodeFiles>>} */ (nodeFiles());
  for (const name of await fs.readdir(folder)) {
    const owner =
      name.startsWith(`.${base}.`) && /^(\d+)-\d+\.tmp$/.exec(name.slice(base.length + 2));
    if (owner && !isAlive(Number(owner[1]))) {
      await fs.rm(path.join(folder, name), { force: true, recursive: true });
    }
  }
}

/** @param {number} pid */
function isAlive(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code !== "ESRCH";
  }
}

/**
 * Make `folder` one of these files. It may be missing or empty, or hold the same files, of which
 * only `changing` has another content: that one is replaced whole or not at all. Node only.
 * @param {string} folder
 * @param {ReadonlyMap<string, Uint8Array>} files
 * @param {string} changing
 */
export async function writeFolder(folder, files, changing) {
  const node = nodeFiles();
  if (!node) {
    throw new OptionsError(`${folder}: a page cannot write files`, {
      hint: "leave the folder out",
    });
  }
  const { fs, path, process } = node;
  const there = await fs.readdir(folder).catch(() => /** @type {string[]} */ ([]));
  const foreign = there.filter((name) => !files.has(name)).sort();
  if (foreign.length) {
    throw new BundleError(`${folder} holds ${foreign[0]}, which would be lost`, {
      hint: "give a folder that is missing, empty, or an earlier export",
    });
  }
  if (there.length) return replaceOne(folder, there, files, changing);
  const target = path.resolve(folder);
  const name = temporaryName(path.basename(target), process.pid);
  const temporary = path.join(path.dirname(target), name);
  try {
    await removeStale(path.dirname(target), path.basename(target));
    await fs.mkdir(temporary);
    for (const [name, content] of files) await writeSynced(path.join(temporary, name), content);
    await syncFolder(temporary);
    await fs.rename(temporary, target);
  } catch (error) {
    await fs.rm(temporary, { recursive: true, force: true });
    throw new BundleError(`${folder} cannot be written: ${reason(error)}`, { cause: error });
  }
  await syncFolder(path.dirname(target));
}

/**
 * @param {string} folder
 * @param {readonly string[]} there
 * @param {ReadonlyMap<string, Uint8Array>} files
 * @param {string} changing
 */
async function replaceOne(folder, there, files, changing) {
  const { fs, path } = /** @type {NonNullable<ReturnType<typeof nodeFiles>>} */ (nodeFiles());
  for (const [name, content] of files) {
    if (name === changing) continue;
    const found = there.includes(name) && (await fs.readFile(path.join(folder, name)));
    if (!found || !found.equals(content)) {
      throw new BundleError(`${folder} holds the export of another model`, {
        hint: "two files cannot be replaced in one step: give a new folder",
      });
    }
  }
  await replaceFile(path.join(folder, changing), files.get(changing) ?? new Uint8Array());
}

/**
 * An entry of the browser's own database, replaced whole or not at all.
 * @param {string} key
 * @param {{database?: string}} [more] the database's name
 * @returns {Store & {remove(): Promise<void>}}
 */
export function indexedDBStore(key, { database = "flow2onnx" } = {}) {
  /**
   * @template T
   * @param {IDBTransactionMode} mode
   * @param {(states: IDBObjectStore) => IDBRequest<T>} ask
   * @returns {Promise<T>}
   */
  const transact = async (mode, ask) => {
    const db = await openDatabase(database);
    try {
      return await done(db.transaction("states", mode, { durability: "strict" }), ask);
    } finally {
      db.close();
    }
  };
  return {
    name: `${database}/${key}`,
    read: async () => {
      const found = await transact("readonly", (states) => states.get(key));
      if (found === undefined || found instanceof Uint8Array) return found;
      throw new BundleError(`${database}/${key} holds no bytes`, { hint: "use a key of your own" });
    },
    write: (content) =>
      transact("readwrite", (s) => s.put(new Uint8Array(content), key)).then(() => {}),
    remove: () => transact("readwrite", (states) => states.delete(key)),
  };
}

/**
 * @param {string} database
 * @returns {Promise<IDBDatabase>}
 */
function openDatabase(database) {
  if (!globalThis.indexedDB)
    throw new OptionsError("there is no IndexedDB here", { hint: "save to a file" });
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(database, 1);
    request.onupgradeneeded = () => request.result.createObjectStore("states");
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(cannot(database, request.error));
    request.onblocked = () => reject(cannot(database, "another page holds an old version"));
  });
}

/**
 * The answer of a request, once its transaction is complete.
 * @template T
 * @param {IDBTransaction} transaction
 * @param {(states: IDBObjectStore) => IDBRequest<T>} ask
 * @returns {Promise<T>}
 */
function done(transaction, ask) {
  return new Promise((resolve, reject) => {
    const request = ask(transaction.objectStore("states"));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = () => reject(cannot("the database", transaction.error));
  });
}

/**
 * @param {string} what
 * @param {unknown} why
 */
function cannot(what, why) {
  return new BundleError(`${what} cannot be used: ${reason(why)}`, {
    hint: "the disk may be full, or the page may be private",
    cause: why,
  });
}
