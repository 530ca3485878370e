/** Chats as tokens, by the tokenizer and the chat template of the model's folder. */

import { Tokenizer } from "./lib/tokenizers.js";
import { Template } from "./lib/jinja.js";

const IGNORED = -100; // the label of a token that does not count
const STEP = 32; // rows are padded to multiples of it, so that few lengths occur

export class Texts {
  #tokenizer;
  #template;
  #special;

  /** Of the content of texts.json. */
  constructor({ tokenizer, settings }) {
    this.#tokenizer = new Tokenizer(tokenizer, settings);
    const given = settings.chat_template;
    const text = Array.isArray(given)
      ? given.find(({ name }) => name === "default")?.template
      : given;
    this.#template = typeof text === "string" ? new Template(text) : null;
    const special = Object.entries(settings).filter(([name]) => name.endsWith("_token"));
    const texts = special.map(([name, value]) => [name, value?.content ?? value]);
    this.#special = Object.fromEntries(texts.filter(([, value]) => typeof value === "string"));
  }

  /** The numbers of the tokens of a text; none is added. */
  encode(text) {
    return this.#tokenizer.encode(text, { add_special_tokens: false }).ids;
  }

  /** The text of tokens, special ones left out. */
  decode(ids) {
    return ids.length ? this.#tokenizer.decode(ids, { skip_special_tokens: true }) : "";
  }

  /** The tokens with which a text may end. */
  get ends() {
    const text = this.#special.eos_token;
    return text === undefined ? [] : this.encode(text);
  }

  /** The tokens of a question, up to where the assistant begins to write. */
  question(text) {
    return this.encode(this.#render([{ role: "user", content: text }], true));
  }

  /**
   * The rows of JSON lines, each with messages, or prompt and completion, or text: what is read,
   * and the labels, which are what comes next where that counts. Throws with the number of a line.
   */
  rows(lines, length) {
    const found = [];
    for (const [i, line] of lines.split("\n").entries()) {
      if (!line.trim()) continue;
      try {
        const row = this.#row(JSON.parse(line), length);
        if (row) found.push(row);
      } catch (error) {
        throw new Error(`line ${i + 1}: ${error.message}`);
      }
    }
    if (!found.length) throw new Error("no line has a token that counts: chats need an answer");
    return found;
  }

  #row(content, length) {
    const [whole, spans] = this.#text(content);
    const ids = this.encode(whole);
    const edges = spans.map(([first, last]) => [
      this.#edge(whole, ids, first, 0),
      this.#edge(whole, ids, last, 1),
    ]);
    const counts = ids.map((_, i) => edges.some(([first, last]) => first <= i && i < last));
    const size = Math.min(ids.length, length);
    const labels = ids.slice(1, size).map((id, i) => (counts[i + 1] ? id : IGNORED));
    return labels.some((label) => label !== IGNORED)
      ? row(ids.slice(0, size), labels, size < ids.length)
      : null;
  }

  /** The whole text, and the spans that count. */
  #text(content) {
    const end = this.#special.eos_token ?? "";
    if (content === null || typeof content !== "object") throw new Error("it is no object");
    if ("messages" in content) return this.#chat(content.messages);
    const has = (key) => typeof content[key] === "string";
    if (has("prompt") && has("completion")) {
      const whole = content.prompt + content.completion + end;
      return [whole, [[content.prompt.length, whole.length]]];
    }
    if (has("text")) return [content.text + end, [[0, content.text.length + end.length]]];
    throw new Error("a line has messages, or prompt and completion, or text");
  }

  #chat(messages) {
    const isMessage = (m) => typeof m?.role === "string" && typeof m.content === "string";
    if (!Array.isArray(messages) || !messages.length || !messages.every(isMessage)) {
      throw new Error("messages is a list of objects with role and content");
    }
    const whole = this.#render(messages, false);
    const spans = [];
    for (const [i, { role }] of messages.entries()) {
      if (role !== "assistant") continue;
      const before = this.#render(messages.slice(0, i), true);
      const after = this.#render(messages.slice(0, i + 1), false);
      if (!after.startsWith(before) || !whole.startsWith(after)) {
        throw new Error(`the template writes message ${i + 1} otherwise when more follow`);
      }
      spans.push([before.length, after.length]);
    }
    return [whole, spans];
  }

  #render(messages, asks) {
    if (!this.#template) throw new Error("the model's folder has no chat template");
    return this.#template.render({ messages, add_generation_prompt: asks, ...this.#special });
  }

  /** The first token that begins at `place` or behind; `past` is added if one stands across it. */
  #edge(whole, ids, place, past) {
    const before = this.encode(whole.slice(0, place));
    let same = 0;
    while (same < before.length && before[same] === ids[same]) same += 1;
    if (same === before.length) return same;
    const raw = (count) => this.#tokenizer.decode(ids.slice(0, count)).length;
    while (same < ids.length && raw(same + 1) <= place) same += 1;
    return same + past;
  }
}

/** Feeds of one row, padded on the right. */
function row(ids, labels, isCut) {
  const width = Math.ceil(ids.length / STEP) * STEP;
  const filled = (values, filler) => {
    const all = new BigInt64Array(width).fill(BigInt(filler));
    values.forEach((value, i) => (all[i] = BigInt(value)));
    return { data: all, shape: [1, width], dtype: "int64" };
  };
  const feeds = {
    input_ids: filled(ids, 0),
    attention_mask: filled(
      ids.map(() => 1),
      0,
    ),
    labels: filled(labels, IGNORED),
  };
  return { feeds, tokens: ids.length, isCut };
}
