/** The model on a phone: the same as in a page, with other packages below it. */

import * as ort from "onnxruntime-react-native";
import { PersonalDigits } from "../web/personal_digits.js";
import { bundleFiles, phoneStore } from "./files.js";

export async function openDigits() {
  const stores = { shown: phoneStore("shown.safetensors"), state: phoneStore("state.safetensors") };
  return PersonalDigits.open({ bundle: await bundleFiles(), ort, ...stores });
}
