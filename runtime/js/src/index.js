/** Train and predict with flow2onnx bundles on a stock ONNX Runtime, in Node and in the browser. */

export { fromAdapter, toAdapter } from "./adapters.js";
export { NDArray } from "./dtypes.js";
export {
  BundleError,
  FeedError,
  FlowError,
  NonFiniteError,
  OptionsError,
  ProviderError,
  RunError,
  StateError,
} from "./errors.js";
export { Manifest } from "./manifest.js";
export { Predictor } from "./predictor.js";
export { Options } from "./runtime.js";
export { fromSafetensors, toSafetensors } from "./safetensors.js";
export { State } from "./state.js";
export { fileStore, indexedDBStore } from "./stores.js";
export { Trainer } from "./trainer.js";

/** @typedef {import("./bundle.js").Progress} Progress */
/** @typedef {import("./dtypes.js").Data} Data */
/** @typedef {import("./manifest.js").StateSpec} StateSpec */
/** @typedef {import("./manifest.js").TensorSpec} TensorSpec */
/** @typedef {import("./manifest.js").PredictJob} PredictJob */
/** @typedef {import("./program.js").ArrayLike} ArrayLike */
/** @typedef {import("./program.js").Feeds} Feeds */
/** @typedef {import("./program.js").Results} Results */
/** @typedef {import("./runtime.js").Ort} Ort */
/** @typedef {import("./sources.js").BundleSource} BundleSource */
/** @typedef {import("./stores.js").Store} Store */
