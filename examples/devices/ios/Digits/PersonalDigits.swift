import Flow2Onnx
import Foundation

/// A model of digits that learns the hand of the device's owner. What it was shown lies in
/// shown.safetensors, what it has learnt in state.safetensors; nothing leaves the device.
actor PersonalDigits {
    private static let batch = 16
    private static let pixels = 8 * 8
    private static let most = 1024  // examples that are kept, the latest

    private let trainer: Trainer
    private let shown, state: String
    private var images: [Float] = []
    private var labels: [Int32] = []

    /// Open the bundle in a folder; examples and state are in another, or will be.
    init(bundle: String, folder: String) throws {
        shown = folder + "/shown.safetensors"
        state = folder + "/state.safetensors"
        trainer = try Trainer(bundle)
        if FileManager.default.fileExists(atPath: state) { try trainer.load(state) }
        if FileManager.default.fileExists(atPath: shown) {
            let earlier = try Safetensors.load(shown)
            images = try earlier["images"]?.values() ?? []
            labels = try earlier["labels"]?.values() ?? []
        }
    }

    var steps: Int64 { trainer.steps }

    /// Remember an image, 64 numbers from 0 to 1 row by row, and the digit that it shows.
    func collect(_ image: [Float], _ digit: Int32) throws {
        images += image
        labels.append(digit)
        let surplus = max(0, labels.count - Self.most)
        images.removeFirst(surplus * Self.pixels)
        labels.removeFirst(surplus)
        try Safetensors.save(shown, [
            Tensor(images, shape: [labels.count, Self.pixels], name: "images"),
            Tensor(labels, shape: [labels.count], name: "labels"),
        ])
    }

    /// Learn all examples so often, and save; the mean loss of the last time, or nil without a full
    /// batch. A task that is cancelled ends it; what was learnt in whole times stays.
    func train(_ times: Int) async throws -> Double? {
        let batches = try (0..<labels.count / Self.batch).map { number in
            let first = number * Self.batch
            let chosen = images[first * Self.pixels..<(first + Self.batch) * Self.pixels]
            return [
                try Tensor(Array(chosen), shape: [Self.batch, 1, 8, 8]),
                try Tensor(Array(labels[first..<first + Self.batch]), shape: [Self.batch]),
            ]
        }
        var loss: Double?
        for _ in 0..<(batches.isEmpty ? 0 : times) {
            var sum = 0.0
            for try await one in trainer.losses(of: batches) { sum += one }
            try Task.checkCancellation()
            try trainer.save(state)
            loss = sum / Double(batches.count)
        }
        return loss
    }

    /// The digit that an image shows.
    func predict(_ image: [Float]) throws -> Int {
        let results = try trainer.predict(Tensor(image, shape: [1, 1, 8, 8]))
        let chances = try results.values.first?.values(Float.self) ?? []
        return chances.indices.max { chances[$0] < chances[$1] } ?? 0
    }
}
