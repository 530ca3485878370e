/** The bundle, and places to save to, in the folders of the application. */

import * as RNFS from "@dr.pogodin/react-native-fs";
import { Platform } from "react-native";

// Files come and go as text in base64. In pieces: a call takes so many arguments and no more.
function toBase64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 1 << 13) {
    text += String.fromCharCode(...bytes.subarray(i, i + (1 << 13)));
  }
  return btoa(text);
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** The files of a bundle by name, from Android's assets or the bundle of an iOS application. */
export async function bundleFiles() {
  const isAndroid = Platform.OS === "android";
  const list = isAndroid ? RNFS.readDirAssets : RNFS.readDir;
  const read = isAndroid ? RNFS.readFileAssets : RNFS.readFile;
  const entries = await list(isAndroid ? "bundle" : `${RNFS.MainBundlePath}/bundle`);
  const contents = await Promise.all(entries.map(({ path }) => read(path, "base64")));
  return new Map(entries.map(({ name }, i) => [name, fromBase64(contents[i])]));
}

/**
 * A file that is the old one or the new one, whenever the application is killed. Renaming replaces no
 * file on iOS, so for a moment the new one is `x.next`, and whoever comes next takes it for `x`.
 */
export function phoneStore(name) {
  const path = `${RNFS.DocumentDirectoryPath}/${name}`;
  async function takeNext() {
    if (!(await RNFS.exists(`${path}.next`))) return;
    if (await RNFS.exists(path)) await RNFS.unlink(path);
    await RNFS.moveFile(`${path}.next`, path);
  }
  return {
    name: path,
    async read() {
      await takeNext();
      return (await RNFS.exists(path)) ? fromBase64(await RNFS.readFile(path, "base64")) : undefined;
    },
    async write(bytes) {
      await takeNext();
      await RNFS.writeFile(`${path}.part`, toBase64(bytes), "base64");
      await RNFS.moveFile(`${path}.part`, `${path}.next`);
      await takeNext();
    },
  };
}
