/** The errors of this package: one tree, the names that the Python runtime has. */

/** Root of everything this package throws on purpose; `hint` says what to do. */
export class FlowError extends Error {
  /**
   * @param {string} message
   * @param {{hint?: string, cause?: unknown}} [more]
   */
  constructor(message, { hint, cause } = {}) {
    super(hint ? `${message}\n  ${hint}` : message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    /** @type {string | undefined} */
    this.hint = hint;
  }
}

/** A bundle, model or state file that is not what the contract asks for. */
export class BundleError extends FlowError {}

/** A value that does not fit the state: unknown name, other shape, other dtype. */
export class StateError extends FlowError {}

/** An array given to a model that does not fit the model's input: count, name, shape, dtype. */
export class FeedError extends FlowError {}

/** A model that the runtime opened but could not run on these values; the state is unchanged. */
export class RunError extends FlowError {}

/** An option whose name or value the runtime does not take. */
export class OptionsError extends FlowError {}

/** An execution provider that cannot be used here. */
export class ProviderError extends FlowError {}

/** A loss that is NaN or infinite while `finiteLosses` is on. */
export class NonFiniteError extends FlowError {}

/**
 * The message of an unknown thrown value.
 * @param {unknown} error
 * @returns {string}
 */
export function reason(error) {
  return error instanceof Error ? error.message : String(error);
}
