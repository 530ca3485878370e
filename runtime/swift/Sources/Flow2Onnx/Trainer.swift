import CFlow2Onnx
import Foundation

/// A bundle's job with its state. Calls of one trainer take turns; a call that fails leaves the state
/// as it was. Results are copies of the caller's own.
public final class Trainer: @unchecked Sendable {
    private let handle: OpaquePointer
    private let turn = NSRecursiveLock()
    private let memory = Results()

    /// Open the bundle in a folder.
    public init(_ bundle: String, options: Options = Options()) throws {
        try checkText(bundle)
        var opened: OpaquePointer?
        try options.withRaw { options in
            try check { f2o_trainer_open(bundle, options, &opened, $0) }
        }
        guard let handle = opened else { preconditionFailure("an open trainer has an address") }
        self.handle = handle
    }

    deinit { f2o_trainer_close(handle) }

    private func take<R>(_ work: () throws -> R) rethrows -> R {
        turn.lock()
        defer { turn.unlock() }
        return try work()
    }

    // MARK: Running

    /// What a step reads.
    public var feeds: [Spec] { Spec.list { f2o_trainer_feeds(handle, $0) } }

    /// What a step gives.
    public var results: [Spec] { Spec.list { f2o_trainer_results(handle, $0) } }

    private typealias Run = (
        OpaquePointer?, UnsafePointer<f2o_tensor>?, Int, UnsafeMutablePointer<f2o_tensors>?,
        UnsafeMutablePointer<f2o_error>?
    ) -> f2o_status

    private func run(_ feeds: [Tensor], _ call: Run) throws -> [String: Tensor] {
        try take {
            try withRaw(feeds) { given in
                try memory.of { results in
                    try check { call(handle, given.baseAddress, given.count, results, $0) }
                }
            }
        }
    }

    /// One step; feeds come by place or by name, each once.
    @discardableResult
    public func step(_ feeds: Tensor...) throws -> [String: Tensor] { try step(feeds) }

    @discardableResult
    public func step(_ feeds: [Tensor]) throws -> [String: Tensor] { try run(feeds, f2o_trainer_step) }

    /// The results of a step that is not made.
    public func evaluate(_ feeds: Tensor...) throws -> [String: Tensor] {
        try run(feeds, f2o_trainer_evaluate)
    }

    /// Add up the gradients of a batch.
    @discardableResult
    public func accumulate(_ feeds: Tensor...) throws -> [String: Tensor] {
        try run(feeds, f2o_trainer_accumulate)
    }

    /// Make one step of the mean of the gradients added up.
    public func update() throws {
        try take { try check { f2o_trainer_update(handle, $0) } }
    }

    /// A predict job (nil: the first) on the present state.
    public func predict(_ feeds: Tensor..., job: String? = nil) throws -> [String: Tensor] {
        try job.map(checkText)
        return try run(feeds) { handle, given, count, results, error in
            f2o_trainer_predict(handle, job, given, count, results, error)
        }
    }

    /// The mean of a result, by default the first, after each step on a batch. A task that is
    /// cancelled stops the step under way, which then changes nothing.
    public func losses<S: Sequence & Sendable>(
        of batches: S, result: String? = nil
    ) -> AsyncThrowingStream<Double, Error> where S.Element == [Tensor] {
        AsyncThrowingStream { continuation in
            let task = Task.detached {
                do {
                    let name = result ?? self.results[0].name
                    for batch in batches {
                        try Task.checkCancellation()
                        guard let loss = try self.step(batch)[name] else {
                            throw Flow2OnnxError(.state, "a step has no result \(name)",
                                                 hint: "results lists the names")
                        }
                        continuation.yield(try loss.mean())
                    }
                    continuation.finish()
                } catch {
                    continuation.finish(throwing: error)
                }
                self.stop(false)
            }
            continuation.onTermination = { reason in
                guard case .cancelled = reason else { return }
                task.cancel()
                self.stop(true)
                Task.detached {
                    _ = await task.value
                    self.stop(false)
                }
            }
        }
    }

    /// From any thread: while stopped, a run ends soon, or does not begin, with the state as it was;
    /// false lets runs begin again.
    public func stop(_ stopped: Bool) { f2o_trainer_stop(handle, stopped) }

    // MARK: Counts, rates, what is frozen

    /// The steps done.
    public var steps: Int64 { take { f2o_trainer_steps(handle) } }

    /// The batches added up since the last update.
    public var accumulated: Int64 { take { f2o_trainer_accumulated(handle) } }

    /// The rate that overrides the schedule; below 0 while the schedule holds.
    public var rate: Double { take { f2o_trainer_rate(handle) } }

    /// Override the schedule.
    public func setRate(_ rate: Double) throws {
        try take { try check { f2o_trainer_set_rate(handle, rate, $0) } }
    }

    /// Give the rate back to the schedule.
    public func useSchedule() throws {
        try take { try check { f2o_trainer_use_schedule(handle, $0) } }
    }

    /// Freeze these variables with their slots, and no others.
    public func freeze(_ names: String...) throws {
        try take {
            try withTexts(names) { given in
                try check { f2o_trainer_freeze(handle, given.baseAddress, given.count, $0) }
            }
        }
    }

    /// True for a variable that is frozen.
    public func isFrozen(_ variable: String) -> Bool { take { f2o_trainer_is_frozen(handle, variable) } }

    // MARK: Files

    /// Write a file that appears whole or not at all, also when the process is killed.
    public func save(_ path: String) throws {
        try checkText(path)
        try take { try check { f2o_trainer_save(handle, path, $0) } }
    }

    /// Go on from a saved state, bit for bit.
    public func load(_ path: String) throws {
        try checkText(path)
        try take { try check { f2o_trainer_load(handle, path, $0) } }
    }

    /// Write the adapter that a bundle of adapters trains, as ONNX Runtime's file .onnx_adapter,
    /// which appears whole or not at all.
    public func exportAdapter(_ path: String) throws {
        try checkText(path)
        try take { try check { f2o_trainer_export_adapter(handle, path, $0) } }
    }

    /// Go on from an adapter of the same modules and ranks; the optimizer's slots stay.
    public func loadAdapter(_ path: String) throws {
        try checkText(path)
        try take { try check { f2o_trainer_load_adapter(handle, path, $0) } }
    }

    /// Export a predict job (nil: the first) with the present weights, for any ONNX Runtime.
    public func exportPredict(_ folder: String, job: String? = nil) throws {
        try checkText(folder)
        try job.map(checkText)
        try take { try check { f2o_trainer_export_predict(handle, folder, job, $0) } }
    }

    // MARK: State

    /// What tensors the state has.
    public var state: [Spec] { Spec.list { f2o_state_specs(f2o_trainer_state(handle), $0) } }

    /// Copies of the tensors named; of all if none is.
    public func readState(_ names: String...) throws -> [String: Tensor] {
        try take {
            try withTexts(names) { given in
                try memory.of { values in
                    let chosen = names.isEmpty ? nil : given.baseAddress
                    try check {
                        f2o_state_read(f2o_trainer_state(handle), chosen, given.count, values, $0)
                    }
                }
            }
        }
    }

    /// Replace some tensors. All are checked before any is written.
    public func writeState(_ values: [Tensor]) throws {
        try take {
            try withRaw(values) { given in
                try check {
                    f2o_state_write(f2o_trainer_state(handle), given.baseAddress, given.count, $0)
                }
            }
        }
    }

    /// Replace exactly all tensors.
    public func replaceState(_ values: [Tensor]) throws {
        try take {
            try withRaw(values) { given in
                try check {
                    f2o_state_replace(f2o_trainer_state(handle), given.baseAddress, given.count, $0)
                }
            }
        }
    }
}
