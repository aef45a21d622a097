"use strict";
(async () => {
  const $ = (id) => document.getElementById(id);
  const episode = JSON.parse($("episode").textContent);
  const { steps, every, length, groups, columns, palette, size, marks } = episode;
  const GROUPS_KEPT = 6;
  const warn = (text) => { $("warning").textContent = text; $("warning").hidden = false; };

  // What is shown: the place in the film, where picture number i is of step stepOf(i).
  const stepOf = (i) => Math.min(i * every, length);
  const placeOf = (step) => Math.max(0, Math.min(steps - 1, step >= length ? steps - 1 : Math.round(step / every)));
  let at = 0, wanted = 0, playing = false, speed = 0, due = 0, before = null;

  // Groups of steps, unpacked when they are wanted.
  const known = new Map();
  const unpack = async (id) => {
    const text = $(id).textContent;
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new DataView(await new Response(stream).arrayBuffer());
  };
  const groupOf = (i) => {
    let low = 0, high = groups.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (groups[middle] <= i) low = middle; else high = middle - 1;
    }
    return low;
  };
  const group = (number) => {
    if (number >= groups.length) return null;
    let found = known.get(number);
    if (!found) {
      found = Promise.all([unpack("v" + number), palette.length ? unpack("p" + number) : null]);
      known.set(number, found);
      if (known.size > GROUPS_KEPT) known.delete(known.keys().next().value);
    }
    return found;
  };

  // The picture: a colour's number for each pixel, of which each step says what changes.
  const SAME = 255;
  const context = $("picture").getContext("2d");
  const colours = palette.map((rgb) => [parseInt(rgb.slice(0, 2), 16), parseInt(rgb.slice(2, 4), 16), parseInt(rgb.slice(4), 16)]);
  let image = null, drawn = -1, drawnTo = 0;
  const draw = (i, number, pictures) => {
    const first = groups[number];
    if (drawn < first || drawn > i) { drawn = first - 1; drawnTo = 0; }
    while (drawn < i) {
      const [left, top, width, height] = [0, 2, 4, 6].map((byte) => pictures.getUint16(drawnTo + byte, true));
      drawnTo += 8;
      for (let y = 0; y < height; y++) {
        let to = ((top + y) * size[0] + left) * 4;
        for (let x = 0; x < width; x++, to += 4) {
          const index = pictures.getUint8(drawnTo++);
          if (index === SAME) continue;
          const colour = colours[index];
          image.data[to] = colour[0]; image.data[to + 1] = colour[1]; image.data[to + 2] = colour[2];
        }
      }
      drawn++;
    }
    context.putImageData(image, 0, 0);
  };

  // Values: column by column of a group, singles in 4 bytes and all else in 8.
  const rowOf = (view, i, number) => {
    const first = groups[number], count = (groups[number + 1] ?? steps) - first;
    let offset = 0;
    return columns.map(({ bytes }) => {
      const place = offset + (i - first) * bytes;
      offset += count * bytes;
      return bytes === 4 ? view.getFloat32(place, true) : view.getFloat64(place, true);
    });
  };
  const real = (value, bytes) => {
    if (!Number.isFinite(value)) return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
    return String(Number(value.toPrecision(bytes === 4 ? 7 : 10)));
  };
  const cells = [];
  for (const [index, column] of columns.entries()) {
    if (index === 0 || columns[index - 1].of !== column.of) {
      const head = $("values").insertRow();
      head.className = "head";
      head.insertCell().textContent = column.of;
      head.insertCell();
    }
    const row = $("values").insertRow();
    row.insertCell().textContent = column.name;
    cells.push(row.insertCell());
  }
  const tell = (row) => {
    for (const [index, { bytes, names, start, from }] of columns.entries()) {
      const value = row[index], name = names && names[value - start];
      const text = from > stepOf(at) ? "-" : real(value, bytes);
      cells[index].textContent = name !== undefined && text !== "-" ? text + " " + name : text;
    }
  };

  // One step at a time is on its way to the screen; of those asked for meanwhile, the last.
  let busy = false;
  const show = async (i) => {
    wanted = Math.max(0, Math.min(steps - 1, i));
    if (busy) return;
    busy = true;
    try {
      while (at !== wanted || drawn < 0 && document.body.dataset.step === undefined) {
        const now = wanted, number = groupOf(now);
        const [values, pictures] = await group(number);
        if (playing) group(number + 1);
        at = now;
        if (pictures) draw(now, number, pictures);
        tell(rowOf(values, now, number));
        document.body.dataset.step = stepOf(now);
        if (document.activeElement !== $("step")) $("step").value = stepOf(now);
        $("timeline").setAttribute("aria-valuenow", stepOf(now));
        plot();
      }
    } catch (error) {
      playing = false;
      warn("This step cannot be shown: " + error);
    }
    busy = false;
  };
  const jump = (i) => { pause(); return show(i); };

  // The timeline: rewards as a band, the return as a line, marks, and where it stands.
  const line = $("timeline"), paper = line.getContext("2d");
  const { width: bucket, returns, least, most } = episode.timeline;
  const bounds = (lists) => {
    let [low, high] = [0, 0];
    for (const list of lists) for (const value of list) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
    return high > low ? [low, high] : [low - 1, high + 1];
  };
  const [lowReturn, highReturn] = bounds([returns]), [lowReward, highReward] = bounds([least, most]);
  const plot = () => {
    const scale = window.devicePixelRatio || 1, w = line.clientWidth, h = line.clientHeight, edge = 6;
    if (line.width !== Math.round(w * scale) || line.height !== Math.round(h * scale)) { line.width = Math.round(w * scale); line.height = Math.round(h * scale); }
    paper.setTransform(scale, 0, 0, scale, 0, 0);
    paper.clearRect(0, 0, w, h);
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name);
    const x = (step) => edge + (w - 2 * edge) * (length ? step / length : 0);
    const y = (value, low, high) => h - edge - (h - 2 * edge) * (value - low) / (high - low);
    paper.fillStyle = colour("soft");
    paper.fillRect(0, 0, w, h);
    paper.fillStyle = colour("ochre");
    paper.globalAlpha = 0.45;
    for (let i = 0; i < least.length; i++) {
      if (least[i] === null) continue;
      const top = y(Math.max(most[i], 0), lowReward, highReward), bottom = y(Math.min(least[i], 0), lowReward, highReward);
      const left = x(i * bucket), right = x(Math.min((i + 1) * bucket, length));
      paper.fillRect(left, top, Math.max(right - left - 0.3, 0.7), Math.max(bottom - top, 0.7));
    }
    paper.globalAlpha = 1;
    paper.strokeStyle = colour("blue");
    paper.lineWidth = 2;
    paper.beginPath();
    paper.moveTo(x(0), y(0, lowReturn, highReturn));
    for (let i = 0; i < returns.length; i++) if (returns[i] !== null) paper.lineTo(x(Math.min((i + 1) * bucket, length)), y(returns[i], lowReturn, highReturn));
    paper.stroke();
    paper.fillStyle = colour("red");
    for (const mark of marks) if (mark.at > 0) {
      paper.beginPath();
      paper.moveTo(x(mark.at), 12); paper.lineTo(x(mark.at) - 5, 2); paper.lineTo(x(mark.at) + 5, 2);
      paper.fill();
    }
    paper.fillStyle = colour("ink");
    paper.fillRect(x(stepOf(at)) - 1, 0, 2, h);
  };
  const scrub = (event) => {
    const box = line.getBoundingClientRect();
    const part = (event.clientX - box.left - 6) / (box.width - 12);
    jump(placeOf(Math.max(0, Math.min(1, part)) * length));
  };
  line.addEventListener("pointerdown", (event) => { line.setPointerCapture(event.pointerId); scrub(event); });
  line.addEventListener("pointermove", (event) => { if (event.buttons & 1) scrub(event); });

  // Playing.
  const frame = (now) => {
    if (!playing) return;
    due += Math.min(now - before, 250) / 1000 * episode.fps * 2 ** speed;
    before = now;
    const whole = Math.floor(due);
    due -= whole;
    if (whole > 0) {
      if (wanted >= steps - 1) return pause();
      show(wanted + whole);
    }
    requestAnimationFrame(frame);
  };
  const pause = () => { playing = false; $("play").textContent = "play"; };
  const play = async () => {
    if (wanted >= steps - 1) await show(0);
    playing = true; due = 0; before = performance.now();
    $("play").textContent = "pause";
    requestAnimationFrame(frame);
  };
  const toggle = () => playing ? pause() : play();
  const hasten = (by) => { speed = Math.max(-4, Math.min(6, speed + by)); $("speed").value = speed; };
  const toMark = (forward) => {
    const there = marks.map((mark) => placeOf(mark.at)).filter((place) => forward ? place > wanted : place < wanted);
    if (there.length) jump(forward ? there[0] : there[there.length - 1]);
  };
  const go = (typed) => {
    const text = typed.replaceAll(",", "").trim();
    const step = text.endsWith("%") ? parseFloat(text) / 100 * length : parseInt(text, 10);
    if (Number.isFinite(step)) jump(placeOf(step)); else $("step").value = stepOf(at);
  };
  const keys = {
    " ": toggle, ArrowLeft: () => jump(wanted - 1), h: () => jump(wanted - 1), ArrowRight: () => jump(wanted + 1), l: () => jump(wanted + 1),
    PageUp: () => jump(wanted - Math.max(1, Math.floor(steps / 10))), PageDown: () => jump(wanted + Math.max(1, Math.floor(steps / 10))),
    Home: () => jump(0), End: () => jump(steps - 1), "[": () => toMark(false), "]": () => toMark(true),
    "+": () => hasten(1), "=": () => hasten(1), "-": () => hasten(-1), g: () => { $("step").focus(); $("step").select(); },
    "?": () => $("keys").open ? $("keys").close() : $("keys").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const inside = event.target instanceof Element && event.target.closest("input, select");
    if (event.ctrlKey || event.altKey || event.metaKey || inside) return;
    if (event.key === " " && event.target instanceof HTMLButtonElement) return;
    const does = keys[event.key];
    if (does && (!$("keys").open || event.key === "?")) { event.preventDefault(); does(); }
  });
  $("step").addEventListener("keydown", (event) => {
    if (event.key === "Enter") { go($("step").value); $("step").blur(); }
    if (event.key === "Escape") { $("step").value = stepOf(at); $("step").blur(); }
  });
  const on = (id, does) => $(id).addEventListener("click", does);
  on("first", keys.Home); on("back", keys.h); on("play", toggle); on("forward", keys.l); on("last", keys.End); on("help", keys["?"]);
  for (let power = -4; power <= 6; power++) $("speed").add(new Option(power < 0 ? "1/" + 2 ** -power + "x" : 2 ** power + "x", power));
  $("speed").value = 0;
  $("speed").addEventListener("change", () => { speed = Number($("speed").value); });

  // The rest of the page.
  for (const [name, value] of episode.facts) {
    const fact = document.createElement("li"), strong = document.createElement("b");
    strong.textContent = value !== null && value.ms !== undefined ? new Date(value.ms).toISOString().slice(0, 19).replace("T", " ") + " UTC" : typeof value === "number" ? real(value, 8) : value;
    fact.append(name + " ", strong);
    $("facts").append(fact);
  }
  $("of").textContent = "of " + length.toLocaleString("en");
  $("timeline").setAttribute("aria-valuemax", length);
  $("marks").textContent = "▼ " + marks.filter((mark) => mark.at > 0).map((mark) => mark.what + " at " + mark.at).join(", ");
  if (episode.warning) warn(episode.warning);
  if (palette.length) {
    [$("picture").width, $("picture").height] = size;
    image = context.createImageData(size[0], size[1]);
    for (let alpha = 3; alpha < image.data.length; alpha += 4) image.data[alpha] = 255;
  } else {
    $("picture").hidden = true;
  }
  new ResizeObserver(plot).observe(line);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", plot);
  if (typeof DecompressionStream === "undefined") return warn("This browser is too old to play the episode: it has no DecompressionStream.");
  const asked = /^#(\d+)$/.exec(location.hash);
  await show(placeOf(asked ? Number(asked[1]) : 0));
  window.addEventListener("hashchange", () => { const step = /^#(\d+)$/.exec(location.hash); if (step) jump(placeOf(Number(step[1]))); });
})();
