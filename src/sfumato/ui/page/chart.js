// One small chart: a line over a grid, what its points say under the pointer or by the arrow keys. It draws, and computes nothing else.

const SPACE = "http://www.w3.org/2000/svg";
const LEFT = 62, RIGHT = 14, TOP = 12, BOTTOM = 44;

function svg(name, attributes, text) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Round numbers from low to high, about so many.
export function ticks(low, high, many = 5) {
  const rough = (high - low) / many || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((one) => one * power >= rough * 0.99) ?? 10);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

// line: {xs, ys, said}; options: {x, y, words, xRange, yRange, percent, under, diagonal, remark}
export function draw(place, line, options) {
  if (!line) {
    const none = document.createElement("p");
    none.className = "none";
    none.textContent = options.none;
    place.replaceChildren(none);
    return;
  }
  const width = Math.max(240, place.clientWidth), height = Math.max(150, place.clientHeight); // so that text has its own size
  const [left, right] = options.xRange ?? range(line.xs, true), [low, high] = options.yRange ?? range(line.ys, options.fromZero);
  const toX = (x) => LEFT + ((x - left) / (right - left)) * (width - LEFT - RIGHT);
  const toY = (y) => height - BOTTOM - ((y - low) / (high - low)) * (height - TOP - BOTTOM);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": options.words });
  const shown = (value) => (options.percent ? `${Number((100 * value).toPrecision(10))} %` : value.toLocaleString("en"));
  for (const y of ticks(low, high)) {
    picture.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: toY(y), y2: toY(y) }));
    picture.append(svg("text", { x: LEFT - 7, y: toY(y) + 4, "text-anchor": "end" }, shown(y)));
  }
  for (const x of ticks(left, right, width < 340 ? 4 : 5)) {
    const name = options.diagonal ? `${Number((100 * x).toPrecision(10))} %` : x.toLocaleString("en");
    if (options.diagonal || Number.isInteger(x)) picture.append(svg("text", { x: toX(x), y: height - BOTTOM + 17, "text-anchor": "middle" }, name));
  }
  const points = line.xs.map((x, at) => `${toX(x).toFixed(2)},${toY(line.ys[at]).toFixed(2)}`);
  if (options.under) {
    picture.append(svg("path", { class: "under", d: `M${toX(left)},${toY(low)}L${points.join("L")}L${toX(right)},${toY(low)}Z` }));
    picture.append(svg("path", { class: "nothing", d: `M${toX(0)},${toY(1)}L${toX(1)},${toY(0)}` }));
    picture.append(svg("text", { class: "remark", x: toX(0.98), y: toY(0.95), "text-anchor": "end" }, options.remark));
  }
  picture.append(svg("path", { class: "axis", fill: "none", d: `M${LEFT},${TOP}V${height - BOTTOM}H${width - RIGHT}` }));
  picture.append(svg("path", { class: "line", d: `M${points.join("L")}` }));
  if (line.xs.length <= 25) for (const point of points) dot(picture, point.split(","));
  picture.append(svg("text", { x: (LEFT + width - RIGHT) / 2, y: height - 6, "text-anchor": "middle" }, options.x));
  const middle = (TOP + height - BOTTOM) / 2;
  picture.append(svg("text", { x: 11, y: middle, "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }, options.y));
  follow(place, picture, line, points.map((point) => point.split(",").map(Number)), width, height - BOTTOM);
}

function dot(picture, [x, y], name = "dot") {
  const made = svg("circle", { class: name, cx: x, cy: y, r: 2.6 });
  picture.append(made);
  return made;
}

function range(values, fromZero) {
  let low = Math.min(...values), high = Math.max(...values);
  if (fromZero) low = Math.min(0, low);
  if (high - low < 1e-12) [low, high] = [low - (fromZero ? 0 : 0.5), high + 0.5];
  return fromZero ? [low, high] : [low - 0.05 * (high - low), high + 0.05 * (high - low)];
}

// Says what stands at the point that is nearest to the pointer, or that the arrow keys have come to.
function follow(place, picture, line, points, width, bottom) {
  const said = document.createElement("div");
  said.className = "said";
  said.hidden = true;
  const guide = svg("line", { class: "guide", y1: TOP, y2: bottom, visibility: "hidden" }), mark = dot(picture, [0, 0], "dot");
  mark.setAttribute("visibility", "hidden");
  picture.append(guide);
  let at = points.length - 1;
  const show = (index) => {
    at = Math.max(0, Math.min(points.length - 1, index));
    const [x, y] = points[at];
    for (const [key, value] of Object.entries({ x1: x, x2: x, visibility: "visible" })) guide.setAttribute(key, value);
    for (const [key, value] of Object.entries({ cx: x, cy: y, r: 4, visibility: "visible" })) mark.setAttribute(key, value);
    said.textContent = line.said[at];
    said.hidden = false;
  };
  const hide = () => {
    said.hidden = true;
    for (const one of [guide, mark]) one.setAttribute("visibility", "hidden");
  };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * width;
    let best = 0;
    points.forEach((point, index) => { if (Math.abs(point[0] - x) < Math.abs(points[best][0] - x)) best = index; });
    show(best);
  });
  picture.addEventListener("pointerleave", hide);
  picture.addEventListener("blur", hide);
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -points.length, End: points.length }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    show(said.hidden ? points.length - 1 : at + step);
  });
  place.replaceChildren(picture, said);
}
