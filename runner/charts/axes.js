// Scales and their ticks: from a chart's axis and the values on it to positions in pixels.
"use strict";

const formats = new Map();

function plain(value, digits = 3) {
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) return value.toExponential(2).replace(/\.?0+e/, "e");
  if (!formats.has(digits)) formats.set(digits, new Intl.NumberFormat("en-US", { maximumSignificantDigits: digits }));
  return Math.abs(value) >= 10 ** digits ? Math.round(value).toLocaleString("en-US") : formats.get(digits).format(value);
}

function niceStep(span, most) {
  const rough = span / most, power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
}

function linearTicks(low, high, most, isWhole = false) {
  const step = Math.max(niceStep(high - low || 1, most), isWhole ? 1 : 0), first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return Array.from({ length: Math.max(count, 0) }, (_, index) => {
    const value = (first + index) * step;
    return { value, label: value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }) };
  });
}

function logTicks(low, high, most) {
  const decades = Math.log10(high / low), within = decades > most ? [1] : decades > most / 3 ? [1, 3] : [1, 2, 5];
  const every = Math.max(1, Math.ceil(decades / most)), ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every) {
    for (const factor of within) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push({ value, label: plain(value) });
    }
  }
  return ticks.length > 1 ? ticks : linearTicks(low, high, most);
}

// {at: from a value to a position, ticks, holds: whether a value can be shown}
function scaleOf(axis, values, from, to, most) {
  const isLog = axis.scale === "log", known = values.filter((value) => value !== null && (!isLog || value > 0));
  let low = Math.min(...known), high = Math.max(...known);
  if (!known.length) [low, high] = isLog ? [1, 10] : [0, 1];
  if (axis.from_zero) low = Math.min(low, 0);
  if (axis.top !== null) high = axis.top;
  if (axis.scale === "category") [low, high] = [-0.5, axis.ticks.length - 0.5];
  else if (isLog) {
    const room = Math.max((high / low) ** 0.05, 1.05);
    [low, high] = [low / room, high * room];
  } else {
    const room = (high - low || Math.abs(high) || 1) * 0.05;
    [low, high] = [axis.from_zero && low === 0 ? 0 : low - room, high + room];
  }
  const place = isLog ? Math.log : (value) => value;
  const at = (value) => from + ((place(value) - place(low)) / (place(high) - place(low))) * (to - from);
  const own = axis.ticks.map((value, index) => ({ value, label: axis.labels[index] ?? plain(value) }));
  if (axis.within.length) [low, high] = [Math.max(low, axis.within[0]), Math.min(high, axis.within[1])];
  const ticks = own.length ? own : (isLog ? logTicks : linearTicks)(low, high, most, axis.is_whole);
  return { at, ticks, low, high, holds: (value) => value !== null && (!isLog || value > 0) };
}
