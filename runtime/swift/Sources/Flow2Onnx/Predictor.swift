import CFlow2Onnx

/// A model file, or a predict job of a bundle; called by any number of threads at once.
public final class Predictor: @unchecked Sendable {
    private let handle: OpaquePointer

    /// Open a model (without a job), or a predict job of a bundle (nil: the first).
    public init(_ modelOrBundle: String, job: String? = nil, options: Options = Options()) throws {
        try checkText(modelOrBundle)
        try job.map(checkText)
        var opened: OpaquePointer?
        try options.withRaw { options in
            try check { f2o_predictor_open(modelOrBundle, job, options, &opened, $0) }
        }
        guard let handle = opened else { preconditionFailure("an open predictor has an address") }
        self.handle = handle
    }

    deinit { f2o_predictor_close(handle) }

    /// What it reads.
    public var feeds: [Spec] { Spec.list { f2o_predictor_feeds(handle, $0) } }

    /// What it gives.
    public var results: [Spec] { Spec.list { f2o_predictor_results(handle, $0) } }

    /// The results; feeds come by place or by name, each once.
    public func run(_ feeds: Tensor...) throws -> [String: Tensor] {
        try withRaw(feeds) { given in
            try Results().of { results in
                try check { f2o_predictor_run(handle, given.baseAddress, given.count, results, $0) }
            }
        }
    }

    /// While stopped, runs of any thread end soon, or do not begin; false lets them begin again.
    public func stop(_ stopped: Bool) { f2o_predictor_stop(handle, stopped) }
}

/// Files of tensors.
public enum Safetensors {
    /// The tensors of a file.
    public static func load(_ path: String) throws -> [String: Tensor] {
        try checkText(path)
        return try Results().of { tensors in try check { f2o_load_safetensors(path, tensors, $0) } }
    }

    /// Write named tensors to a file that appears whole or not at all.
    public static func save(_ path: String, _ tensors: [Tensor]) throws {
        try checkText(path)
        try withRaw(tensors) { given in
            try check { f2o_save_safetensors(path, given.baseAddress, given.count, $0) }
        }
    }
}
