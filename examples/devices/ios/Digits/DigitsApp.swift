import BackgroundTasks
import SwiftUI

@main
struct DigitsApp: App {
    static let task = "flow2onnx.digits.train"  // also in Info.plist
    @Environment(\.scenePhase) private var phase

    init() {
        BGTaskScheduler.shared.register(forTaskWithIdentifier: Self.task, using: nil) { task in
            let work = Task {
                let loss = try? await opened.value.train(10)
                task.setTaskCompleted(success: loss != nil)
            }
            task.expirationHandler = { work.cancel() }
        }
    }

    var body: some Scene {
        WindowGroup { DigitsView() }
            .onChange(of: phase) { now in if now == .background { Self.schedule() } }
    }

    /// Train when the phone is charged and idle.
    static func schedule() {
        let request = BGProcessingTaskRequest(identifier: task)
        request.requiresExternalPower = true
        try? BGTaskScheduler.shared.submit(request)
    }
}

/// The model, opened once; the bundle is a folder among the resources.
let opened = Task {
    let folder = try FileManager.default.url(
        for: .applicationSupportDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
    return try PersonalDigits(bundle: Bundle.main.path(forResource: "bundle", ofType: nil)!, folder: folder.path)
}

/// One draws a digit with a finger, sees what it is taken for, and says what it is.
struct DigitsView: View {
    @State private var pixels = [Float](repeating: 0, count: 64)
    @State private var answer = "draw a digit"

    var body: some View {
        VStack {
            Text(answer).font(.title)
            Canvas { context, size in
                for (i, on) in pixels.enumerated() {
                    let side = size.width / 8
                    let square = CGRect(x: CGFloat(i % 8) * side, y: CGFloat(i / 8) * side, width: side - 1, height: side - 1)
                    context.fill(Path(square), with: .color(on > 0 ? .black : .gray.opacity(0.2)))
                }
            }
            .frame(width: 320, height: 320)
            .gesture(DragGesture(minimumDistance: 0).onChanged { draw($0.location) })
            HStack {
                ForEach(0..<10, id: \.self) { digit in
                    Button("\(digit)") { collect(Int32(digit)) }
                }
            }
            Button("learn") { tell { digits in try await digits.train(10).map { "loss \($0)" } ?? "show 16 digits first" } }
        }
    }

    private func draw(_ place: CGPoint) {
        let (column, row) = (Int(place.x / 40), Int(place.y / 40))
        guard (0..<8).contains(column), (0..<8).contains(row) else { return }
        pixels[8 * row + column] = 1
        let drawn = pixels
        tell { digits in "\(try await digits.predict(drawn))" }
    }

    private func collect(_ digit: Int32) {
        let drawn = pixels
        pixels = [Float](repeating: 0, count: 64)
        tell { digits in
            try await digits.collect(drawn, digit)
            return "remembered"
        }
    }

    private func tell(_ work: @escaping (PersonalDigits) async throws -> String) {
        Task {
            do { answer = try await work(opened.value) } catch { answer = "\(error)" }
        }
    }
}
