// Walk the rows of a file in WebAssembly: node page.mjs model.wasm rows.bin walked.bin
import { readFileSync, writeFileSync } from "node:fs";

const [program, rows, walked] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(readFileSync(program), {});
const model = instance.exports;
const bytes = readFileSync(rows);
const floats = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
const row = new Float32Array(model.memory.buffer, model.row_memory(), model.n_columns());
const number = new Float64Array(model.memory.buffer, model.number_memory(), model.n_numbers());
const n_rows = floats.length / row.length;
const out = new Float64Array(n_rows * number.length);
for (let key = 0; key < n_rows; key++) {
  row.set(floats.subarray(key * row.length, (key + 1) * row.length));
  model.walk_row(key);
  out.set(number, key * number.length);
}
writeFileSync(walked, new Uint8Array(out.buffer));
process.exit(model.failures() ? 1 : 0);
