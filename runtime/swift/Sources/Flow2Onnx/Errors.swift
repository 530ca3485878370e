import CFlow2Onnx
import Foundation

/// Whatever the runtime refuses. A refusal changes nothing.
public struct Flow2OnnxError: Error, LocalizedError, CustomStringConvertible {
    public enum Kind: UInt32 {
        /// A bundle, model or state file that is not what the contract asks for.
        case bundle = 1
        /// A value or request that does not fit the state.
        case state
        /// Arrays that do not fit a model's inputs.
        case feed
        /// A model that was opened but could not be run on these values.
        case run
        /// An option without meaning.
        case options
        /// A loss that is NaN or infinite while finite losses are asked for.
        case nonFinite
        /// A file that cannot be written.
        case file
        /// No memory left.
        case memory
        /// An ONNX Runtime that is missing or too old.
        case missingRuntime
        /// A run that was stopped.
        case stopped
    }

    public let kind: Kind
    /// What was asked, and what was got.
    public let message: String
    /// What to do; empty where nobody knows.
    public let hint: String

    public var description: String { hint.isEmpty ? message : "\(message)\n  \(hint)" }
    public var errorDescription: String? { message }
    public var recoverySuggestion: String? { hint.isEmpty ? nil : hint }

    init(_ kind: Kind, _ message: String, hint: String) {
        self.kind = kind
        self.message = message
        self.hint = hint
    }

    init(_ status: f2o_status, _ text: String) {
        guard let kind = Kind(rawValue: UInt32(status.rawValue)) else {
            preconditionFailure("the C runtime has a new status \(status.rawValue)")
        }
        let lines = text.split(separator: "\n", maxSplits: 1)
        let hint = lines.count > 1 ? lines[1].trimmingCharacters(in: .whitespaces) : ""
        self.init(kind, String(lines.first ?? ""), hint: hint)
    }
}

/// Return if the call succeeds; else throw what its error says.
func check(_ call: (UnsafeMutablePointer<f2o_error>) -> f2o_status) throws {
    var error = f2o_error()
    let status = call(&error)
    if status == F2O_OK { return }
    let text = withUnsafeBytes(of: &error.message) { bytes in
        String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }
    throw Flow2OnnxError(status, text)
}

/// A text that C can hold; it ends at its first zero there.
func checkText(_ text: String) throws {
    if text.utf8.contains(0) {
        throw Flow2OnnxError(
            .options, "the text \(text) holds a zero", hint: "give names and paths without one")
    }
}
