package flow2onnx

import java.util.concurrent.atomic.AtomicBoolean
import kotlin.coroutines.resumeWithException
import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.asExecutor
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.asFlow
import kotlinx.coroutines.flow.map
import kotlinx.coroutines.suspendCancellableCoroutine

/**
 * The mean of a result, by default the step's first, after each step on a batch. Nothing runs until
 * the flow is collected; a collector that is cancelled stops the step under way, which then changes
 * nothing.
 */
fun Trainer.losses(
    batches: Flow<List<Tensor>>,
    result: String = results().first().name(),
    dispatcher: CoroutineDispatcher = Dispatchers.Default,
): Flow<Double> = batches.map { feeds ->
    val results = await(dispatcher) { step(*feeds.toTypedArray()) }
    results[result]?.mean() ?: throw NoSuchElementException("a step has no result $result, but ${results.keys}")
}

/** The same, on batches that are there already. */
fun Trainer.losses(
    batches: Iterable<List<Tensor>>,
    result: String = results().first().name(),
    dispatcher: CoroutineDispatcher = Dispatchers.Default,
): Flow<Double> = losses(batches.asFlow(), result, dispatcher)

/**
 * What a call of the trainer gives, such as `trainer.await { evaluate(images, labels) }`. It is made
 * on a thread of the dispatcher. Cancelling stops it: the state is as it was.
 */
suspend fun <T> Trainer.await(
    dispatcher: CoroutineDispatcher = Dispatchers.Default,
    call: Trainer.() -> T,
): T = suspendCancellableCoroutine { continuation ->
    val begun = AtomicBoolean()
    val ended = AtomicBoolean()
    val stopped = AtomicBoolean()
    continuation.invokeOnCancellation {
        synchronized(ended) {
            if (begun.get() && !ended.get()) {
                stop(true)
                stopped.set(true)
            }
        }
    }
    dispatcher.asExecutor().execute {
        // One call after another: the next begins when the stop of the last is taken back.
        val outcome = synchronized(this@await) {
            synchronized(ended) { begun.set(true) }
            val made = runCatching { if (continuation.isActive) call() else null }
            synchronized(ended) {
                ended.set(true)
                if (stopped.get()) stop(false)
            }
            made
        }
        // Once it is cancelled, nobody waits for either.
        outcome.fold(
            { value -> @Suppress("UNCHECKED_CAST") continuation.resumeWith(Result.success(value as T)) },
            { error -> continuation.resumeWithException(error) },
        )
    }
}
