/** The camera, on and off. */

const WORDS = {
  NotAllowedError: "this page may not use the camera: allow it in the browser's settings",
  NotFoundError: "there is no camera here",
  NotReadableError: "another program is using the camera",
};

/** The camera of a video element; opened and closed as often as one likes. */
export class Camera {
  #stream = null;

  constructor(video) {
    this.video = video;
  }

  get isOn() {
    return this.#stream !== null;
  }

  /** Turn it on, once its first picture is there; throws with words for whoever has none. */
  async open() {
    if (this.isOn) return;
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new Error("this browser has no camera for pages without https: give pictures as files");
    }
    const wanted = { video: { facingMode: "environment", width: { ideal: 640 } } };
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia(wanted);
      this.video.srcObject = this.#stream;
      await this.video.play();
    } catch (error) {
      this.close();
      throw new Error(`${WORDS[error.name] ?? error.message}: give pictures as files`);
    }
  }

  close() {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = null;
    this.video.srcObject = null;
  }
}
