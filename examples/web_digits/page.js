const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const library = await load(bytes(data.wasm));
const { predict, learn } = library;
const names = Object.keys(data.weights);
for (const name of names)
  for (const inputs of [predict.inputs, learn.inputs]) inputs[name].set(new Float32Array(bytes(data.weights[name]).buffer));
const rehearsed = { images: bytes(data.images), labels: bytes(data.labels) };
const lessons = [];
const SIZE = 32, PIXELS = 8, BLOCK = SIZE / PIXELS;

const drawing = document.getElementById("drawing");
const pen = drawing.getContext("2d", { willReadFrequently: true });
Object.assign(pen, { lineWidth: 22, lineCap: "round", lineJoin: "round", strokeStyle: "#2f7bd0" });
const small = Object.assign(document.createElement("canvas"), { width: SIZE, height: SIZE });
const smallPen = small.getContext("2d", { willReadFrequently: true });
const seen = document.getElementById("seen").getContext("2d");
const status = document.getElementById("status");

const rows = Array.from({ length: 10 }, (_, digit) => {
  const row = document.createElement("div");
  row.className = "row";
  row.innerHTML = `<span>${digit}</span><div class="track"><div class="bar"></div></div><span class="number"></span>`;
  document.getElementById("bars").append(row);
  const button = Object.assign(document.createElement("button"), { textContent: digit });
  button.addEventListener("click", () => teach(digit));
  document.getElementById("teach").append(button);
  return row;
});

/** Return the part of the drawing that has ink, or null. */
const findInk = () => {
  const { data: pixels, width, height } = pen.getImageData(0, 0, drawing.width, drawing.height);
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      if (pixels[4 * (y * width + x) + 3] > 64) {
        [left, right] = [Math.min(left, x), Math.max(right, x)];
        [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
      }
  return right < 0 ? null : { left, top, width: right - left + 1, height: bottom - top + 1 };
};

/** Return the drawing as the data has digits: scaled to 32 by 32 points, counted in blocks of 4 by 4. */
const readImage = () => {
  const image = new Float32Array(PIXELS * PIXELS);
  const ink = findInk();
  if (!ink) return image;
  const scale = SIZE / Math.max(ink.width, ink.height);
  const [width, height] = [ink.width * scale, ink.height * scale];
  smallPen.clearRect(0, 0, SIZE, SIZE);
  smallPen.drawImage(drawing, ink.left, ink.top, ink.width, ink.height, (SIZE - width) / 2, (SIZE - height) / 2, width, height);
  const { data: pixels } = smallPen.getImageData(0, 0, SIZE, SIZE);
  for (let y = 0; y < SIZE; y++)
    for (let x = 0; x < SIZE; x++)
      if (pixels[4 * (y * SIZE + x) + 3] > 127)
        image[Math.floor(y / BLOCK) * PIXELS + Math.floor(x / BLOCK)] += 1 / (BLOCK * BLOCK);
  return image;
};

/** Return the probabilities of the ten digits. */
const recognize = (image) => {
  predict.inputs.x.set(image);
  predict.run();
  return predict.results.result.slice();
};

const show = () => {
  const image = readImage();
  const shades = seen.createImageData(PIXELS, PIXELS);
  image.forEach((shade, i) => shades.data.set([47, 123, 208, 255 * shade], 4 * i));
  seen.putImageData(shades, 0, 0);
  const empty = image.every((shade) => !shade);
  const found = empty ? new Float32Array(10) : recognize(image);
  const best = found.indexOf(Math.max(...found));
  rows.forEach((row, digit) => {
    row.classList.toggle("best", !empty && digit === best);
    row.querySelector(".bar").style.width = `${100 * found[digit]}%`;
    row.querySelector(".number").textContent = empty ? "" : `${(100 * found[digit]).toFixed(1)}%`;
  });
  return { best, found };
};

/** Train on the drawing as a digit, mixed with earlier drawings and with digits of the data. */
const teach = (digit, steps = 20) => {
  const image = readImage();
  if (image.every((shade) => !shade)) return null;
  lessons.push({ image, digit });
  const { x, y } = learn.inputs;
  const length = PIXELS * PIXELS;
  for (let step = 0; step < steps; step++) {
    for (let i = 0; i < data.batch; i++) {
      if (i % 4 === 0) {
        const lesson = lessons[i % 8 === 0 ? lessons.length - 1 : Math.floor(Math.random() * lessons.length)];
        x.set(lesson.image, i * length);
        y[i] = lesson.digit;
        continue;
      }
      const other = Math.floor(Math.random() * rehearsed.labels.length);
      for (let k = 0; k < length; k++) x[i * length + k] = rehearsed.images[other * length + k] / 16;
      y[i] = rehearsed.labels[other];
    }
    learn.run(); // the weights are updated in place
  }
  for (const name of names) predict.inputs[name].set(learn.inputs[name]);
  const loss = learn.results.result_1[0];
  status.textContent = `Learned from ${lessons.length} drawing${lessons.length > 1 ? "s" : ""}; loss ${loss.toFixed(3)}`;
  show();
  return loss;
};

const clear = () => {
  pen.clearRect(0, 0, drawing.width, drawing.height);
  show();
};

const place = (event) => {
  const box = drawing.getBoundingClientRect();
  const scale = drawing.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
};
let last = null;
drawing.addEventListener("pointerdown", (event) => {
  last = place(event);
  if (event.isTrusted) drawing.setPointerCapture(event.pointerId);
});
drawing.addEventListener("pointermove", (event) => {
  if (!last) return;
  const next = place(event);
  pen.beginPath();
  pen.moveTo(...last);
  pen.lineTo(...next);
  pen.stroke();
  last = next;
  show();
});
for (const name of ["pointerup", "pointercancel"]) drawing.addEventListener(name, () => (last = null));
document.getElementById("clear").addEventListener("click", clear);
status.textContent = "Ready";
show();
globalThis.page = { recognize, show, teach, clear };
