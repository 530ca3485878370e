/** The classes that a visitor names, with the pictures of each. */

import { paint } from "./pictures.js";

const MOST_PICTURES = 1000; // of all classes

/**
 * A list of classes in `place`. `acts` has what the page does: `changed()`, `say(text)`,
 * `files(index, files)`, `record(index)` and `rest(index)`.
 */
export class Classes {
  #items = [];

  constructor(place, { size, most, acts }) {
    Object.assign(this, { place, size, most, acts });
  }

  get names() {
    return this.#items.map(({ name }) => name.value.trim());
  }

  get count() {
    return this.#items.reduce((sum, { pictures }) => sum + pictures.length, 0);
  }

  /** All pictures end to end, and the number of the class of each. */
  get data() {
    const pictures = this.#items.flatMap((item) => item.pictures);
    const labels = this.#items.flatMap((item, i) => item.pictures.map(() => i));
    const bytes = new Uint8Array(pictures.length * this.size ** 2 * 3);
    pictures.forEach((picture, i) => bytes.set(picture, i * picture.length));
    return { pictures: bytes, labels: Int32Array.from(labels) };
  }

  /** What keeps these classes from being learnt, in words; or null. */
  get trouble() {
    const { names } = this;
    if (names.length < 2) return "one class alone cannot be told from others: add a second one";
    if (names.some((name) => !name)) return "a class has no name: give it one";
    const twice = names.find((name, i) => names.indexOf(name) < i);
    if (twice) return `two classes are called ${twice}: give one another name`;
    const bare = this.#items.find(({ pictures }) => !pictures.length);
    return bare ? `there is no picture of ${bare.name.value.trim()}: show at least one` : null;
  }

  /** Add a class; says so where there are as many as the network has outputs. */
  add(name = `class ${this.#items.length + 1}`) {
    if (this.#items.length >= this.most) {
      this.acts.say(`this network tells ${this.most} classes apart at most`);
      return;
    }
    const item = { pictures: [], ...card(name) };
    this.#items.push(item);
    this.place.append(item.card);
    this.#listen(item);
    this.#count(item);
    this.acts.changed();
  }

  /** Add a picture to a class; false, with words, where there are too many. */
  show(index, picture) {
    if (this.count >= MOST_PICTURES) {
      this.acts.say(`${MOST_PICTURES} pictures are all that this page keeps: remove some`);
      return false;
    }
    const item = this.#items[index];
    if (!item) return false;
    item.pictures.push(picture);
    item.shown.append(this.#thumbnail(item, picture));
    item.shown.scrollLeft = item.shown.scrollWidth;
    this.#count(item);
    this.acts.changed();
    return true;
  }

  /** Replace all classes and pictures. */
  replace(names, { pictures, labels }) {
    for (const { card } of this.#items) card.remove();
    this.#items = [];
    for (const name of names) this.add(name);
    const length = this.size ** 2 * 3;
    labels.forEach((label, i) => this.show(label, pictures.slice(i * length, (i + 1) * length)));
  }

  #listen(item) {
    const index = () => this.#items.indexOf(item);
    item.name.addEventListener("change", () => this.acts.changed());
    item.remove.addEventListener("click", () => this.#remove(item));
    item.file.addEventListener("change", () => {
      this.acts.files(index(), [...item.file.files]);
      item.file.value = "";
    });
    item.record.addEventListener("pointerdown", (event) => {
      item.record.setPointerCapture(event.pointerId);
      this.acts.record(index());
    });
    item.record.addEventListener("keydown", ({ key, repeat }) => {
      if ((key === " " || key === "Enter") && !repeat) this.acts.record(index());
    });
    for (const end of ["pointerup", "pointercancel", "keyup", "blur"]) {
      item.record.addEventListener(end, () => this.acts.rest(index()));
    }
    item.record.addEventListener("contextmenu", (event) => event.preventDefault()); // long touches
    item.card.addEventListener("dragover", (event) => {
      event.preventDefault();
      item.card.classList.add("over");
    });
    item.card.addEventListener("dragleave", () => item.card.classList.remove("over"));
    item.card.addEventListener("drop", (event) => {
      event.preventDefault();
      item.card.classList.remove("over");
      this.acts.files(index(), [...event.dataTransfer.files]);
    });
  }

  #remove(item) {
    const { pictures, name } = item;
    const asks = `Remove ${name.value.trim() || "this class"} and its ${pictures.length} pictures?`;
    if (pictures.length && !confirm(asks)) return;
    this.#items.splice(this.#items.indexOf(item), 1);
    item.card.remove();
    this.acts.changed({ isOtherwise: true });
  }

  #thumbnail(item, picture) {
    const button = Object.assign(document.createElement("button"), { type: "button" });
    const what = "Remove this picture";
    Object.assign(button, { title: what, ariaLabel: what });
    const canvas = document.createElement("canvas");
    paint(canvas, picture, this.size);
    button.append(canvas);
    button.addEventListener("click", () => {
      item.pictures.splice(item.pictures.indexOf(picture), 1);
      button.remove();
      this.#count(item);
      this.acts.changed();
    });
    return button;
  }

  #count({ pictures, count, empty }) {
    count.textContent = pictures.length === 1 ? "1 picture" : `${pictures.length} pictures`;
    empty.hidden = pictures.length > 0;
  }
}

function card(name) {
  const made = document.createElement("li");
  made.className = "class";
  made.innerHTML = `
    <div class="row">
      <input type="text" maxlength="40" aria-label="Name of the class" />
      <span class="note count"></span>
    </div>
    <div class="pictures">
      <p class="empty">
        <span class="by-mouse">drop pictures here</span><span class="by-touch">none yet</span>
      </p>
    </div>
    <div class="actions">
      <button type="button" class="record">Hold to record</button>
      <label class="button">Upload <input type="file" accept="image/*" multiple /></label>
      <button type="button" class="quiet remove">Remove</button>
    </div>`;
  const find = (selector) => made.querySelector(selector);
  find("input[type=text]").value = name;
  return {
    card: made,
    name: find("input[type=text]"),
    count: find(".count"),
    shown: find(".pictures"),
    empty: find(".empty"),
    record: find(".record"),
    file: find("input[type=file]"),
    remove: find(".remove"),
  };
}
