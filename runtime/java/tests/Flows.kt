import flow2onnx.*
import java.util.concurrent.CountDownLatch
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.emptyFlow
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking

/** What Kotlin adds: flows of losses, and calls that are cancelled. Its argument is a bundle. */
fun main(arguments: Array<String>) {
    val options = Options().threads(1)
    val images = Tensor.of(FloatArray(8 * 20) { it * it % 19 / 19f }, 8, 20)
    val batch = listOf(images, Tensor.of(IntArray(8) { it }, 8))
    val wanted = Trainer.open(arguments[0], options).use { trainer ->
        List(3) { trainer.step(*batch.toTypedArray()).getValue("out/0").mean() }
    }
    Trainer.open(arguments[0], options).use { trainer ->
        runBlocking {
            val losses = trainer.losses(List(1000) { batch })
            check(trainer.steps() == 0L) { "nothing runs before it is collected" }
            check(losses.take(3).toList() == wanted) { "the losses of the steps" }
            check(trainer.steps() == 3L) { "and no step more" }
            check(trainer.losses(emptyFlow()).toList().isEmpty()) { "no batch, no loss" }
            check(runCatching { trainer.losses(listOf(batch), "none").toList() }.exceptionOrNull() is NoSuchElementException)
            check(runCatching { trainer.losses(listOf(listOf(images))).toList() }.exceptionOrNull() is FeedException)
        }
        runBlocking {
            val begun = CountDownLatch(1)
            val before = trainer.steps()
            val endless = launch(Dispatchers.Default) {
                trainer.await {
                    while (true) {
                        step(*batch.toTypedArray())
                        begun.countDown()
                    }
                }
            }
            while (begun.count > 0) delay(1)
            endless.cancelAndJoin()
            val steps = trainer.await { steps() }
            check(steps > before) { "it had begun" }
            check(trainer.await { step(*batch.toTypedArray()).size } == 1) { "it goes on" }
            check(trainer.steps() == steps + 1) { "by one step" }
        }
    }
    println("flows are right")
}
