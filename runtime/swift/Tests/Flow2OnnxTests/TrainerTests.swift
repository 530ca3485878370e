import Foundation
import XCTest

@testable import Flow2Onnx

/// The variable FLOW2ONNX_CONFORMANCE names the folder of the conformance bundles.
final class TrainerTests: XCTestCase {
    private let pixels = (0..<160).map { Float($0 * $0 % 19) / 19 }
    private var folder = ""
    private var bundle: String { ProcessInfo.processInfo.environment["FLOW2ONNX_CONFORMANCE"]! + "/mlp" }

    override func setUpWithError() throws {
        folder = NSTemporaryDirectory() + UUID().uuidString
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    }

    private func refused(_ kind: Flow2OnnxError.Kind, _ call: () throws -> Void) {
        XCTAssertThrowsError(try call()) { error in
            XCTAssertEqual((error as? Flow2OnnxError)?.kind, kind)
            XCTAssertFalse((error as? Flow2OnnxError)?.hint.isEmpty ?? true)
        }
    }

    func testTrace() throws {
        let trainer = try Trainer(bundle + "/bundle")
        let feeds = try Safetensors.load(bundle + "/feeds.safetensors")
        let recorded = try JSONSerialization.jsonObject(
            with: Data(contentsOf: URL(fileURLWithPath: bundle + "/trace.json"))) as? [String: Any]
        let trace = try XCTUnwrap(recorded)
        let tolerance = try XCTUnwrap(trace["tolerance"] as? Double)
        for action in try XCTUnwrap(trace["actions"] as? [[String: Any]]) {
            let batch = (action["batch"] as? Int) ?? 0
            let images = try XCTUnwrap(feeds["images"]).row(batch)
            let labels = try XCTUnwrap(feeds["labels"]).row(batch)
            var found: [String: Tensor] = [:]
            switch action["do"] as? String {
            case "step": found = try trainer.step(images, labels)
            case "evaluate": found = try trainer.evaluate(images, labels)
            case "accumulate": found = try trainer.accumulate(images, labels)
            case "predict": found = try trainer.predict(images)
            case "update": try trainer.update()
            case "rate":
                if let rate = action["value"] as? Double { try trainer.setRate(rate) } else { try trainer.useSchedule() }
            case "freeze":
                let names = try XCTUnwrap(action["names"] as? [String])
                try names.isEmpty ? trainer.freeze() : trainer.freeze(names[0])
            case "save": try trainer.save(folder + "/state.safetensors")
            case "load": try trainer.load(folder + "/state.safetensors")
            default: XCTFail("\(action)")
            }
            for (name, wanted) in (action["results"] as? [String: [Double]]) ?? [:] {
                let values = try XCTUnwrap(found[name]).values(Float.self)
                for (a, b) in zip(wanted, values) {
                    XCTAssertLessThanOrEqual(abs(a - Double(b)), tolerance * (1 + abs(a)))
                }
            }
        }
    }

    func testEveryDamagedByteOfAState() throws {
        let trainer = try Trainer(bundle + "/bundle")
        let path = folder + "/state.safetensors"
        try trainer.save(path)
        let content = try Data(contentsOf: URL(fileURLWithPath: path))
        for place in stride(from: 0, to: content.count, by: max(1, content.count / 100)) {
            var damaged = content
            damaged[place] ^= 4
            try damaged.write(to: URL(fileURLWithPath: path))
            refused(.bundle) { try trainer.load(path) }
        }
        XCTAssertEqual(trainer.steps, 0)
    }

    func testRefusals() throws {
        refused(.bundle) { _ = try Trainer(folder) }
        let trainer = try Trainer(bundle + "/bundle")
        refused(.state) { try trainer.setRate(-1) }
        refused(.feed) { try trainer.step() }
        refused(.feed) { _ = try Tensor(pixels, shape: [8, 21]) }
        refused(.options) { try trainer.save("a\0b") }
        trainer.stop(true)
        refused(.stopped) { try trainer.step(Tensor(pixels, shape: [8, 20]), Tensor([Int32](0..<8), shape: [8])) }
        trainer.stop(false)
        XCTAssertEqual(try trainer.readState("hidden-bias").count, 1)
    }

    func testLosses() async throws {
        let trainer = try Trainer(bundle + "/bundle")
        let batch = [try Tensor(pixels, shape: [8, 20]), try Tensor([Int32](0..<8), shape: [8])]
        var losses: [Double] = []
        for try await loss in trainer.losses(of: Array(repeating: batch, count: 5)) { losses.append(loss) }
        XCTAssertEqual(losses.count, 5)
        XCTAssertLessThan(losses[4], losses[0])
    }
}
