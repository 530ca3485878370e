/** The network of a bundle in operations of TensorFlow.js, with the same weights and optimizer. */

const RATE = 0.001;
const OUT = 1e4; // taken off the scores of classes that are not in use

/**
 * A trainer with `step({images, targets, used})`, the loss of one step of Adam. `graph` has the
 * nodes of the ONNX model, `tensors` its weights, `trained` the names of those that learn. Images
 * are (batch, 3, height, width), as in the bundle; TensorFlow.js computes with channels last.
 */
export function networkOf(tf, { nodes, input, output, shape, classes }, tensors, trained) {
  const places = new Map(nodes.flatMap((node) => node.inputs.map((name, i) => [name, { node, i }])));
  const weights = new Map();
  for (const [name, { shape, data }] of Object.entries(tensors)) {
    const laidOut = laid(tf, tf.tensor(data, shape), places.get(name));
    const isTrained = trained.includes(name);
    weights.set(name, isTrained ? tf.variable(laidOut, true, name) : laidOut);
  }
  const variables = trained.map((name) => weights.get(name));
  const optimizer = tf.train.adam(RATE, 0.9, 0.999, 1e-8);
  const logits = (images) => {
    const values = new Map(weights).set(input, images);
    for (const node of nodes) {
      const given = node.inputs.map((name) => values.get(name));
      values.set(node.output, OPERATIONS[node.op](tf, node, given));
    }
    return values.get(output);
  };
  const lossOf = (images, targets, used) =>
    tf.tidy(() => {
      const scores = tf.add(logits(images), tf.mul(tf.sub(used, 1), OUT));
      const shares = tf.logSoftmax(scores);
      return tf.div(tf.neg(tf.sum(tf.mul(targets, shares))), tf.sum(targets));
    });
  return {
    async step({ images, targets, used }) {
      const given = tf.tidy(() => [
        tf.transpose(tf.tensor(images, shape), [0, 2, 3, 1]),
        tf.tensor(targets, [shape[0], classes]),
        tf.tensor(used, [1, classes]),
      ]);
      const loss = optimizer.minimize(() => lossOf(...given), true, variables);
      const [found] = await loss.data();
      tf.dispose([loss, ...given]);
      return found;
    },
  };
}

/** A weight as TensorFlow.js wants it: kernels as (height, width, in, out). */
function laid(tf, tensor, place) {
  if (place?.node.op !== "Conv" || place.i !== 1) return tensor;
  const isDepthwise = place.node.group > 1;
  return tf.transpose(tensor, isDepthwise ? [2, 3, 0, 1] : [2, 3, 1, 0]);
}

const OPERATIONS = {
  Conv(tf, { group, strides = [1, 1], pads = [0, 0, 0, 0] }, [x, kernel, bias]) {
    const convolve = group > 1 ? tf.depthwiseConv2d : tf.conv2d;
    const [top, left, bottom, right] = pads;
    const isSame = strides.every((n) => n === 1) && top === bottom && left === right;
    const around = [[0, 0], [top, bottom], [left, right], [0, 0]];
    const made = isSame
      ? convolve(x, kernel, strides, "same")
      : convolve(tf.pad(x, around), kernel, strides, "valid");
    return bias ? tf.add(made, bias) : made;
  },
  BatchNormalization: (tf, { epsilon }, [x, scale, offset, mean, variance]) =>
    tf.batchNorm(x, mean, variance, offset, scale, epsilon),
  Clip: (tf, _, [x]) => tf.clipByValue(x, 0, 6),
  Add: (tf, _, [x, y]) => tf.add(x, y),
  ReduceMean: (tf, _, [x]) => tf.mean(x, [1, 2]),
  Gemm: (tf, _, [x, weight, bias]) => tf.add(tf.matMul(x, weight), bias),
};
