// Texts of samples that stand in the page, compressed.
const texts = {
  async open() {
    this.rows = await unpack("texts");
  },
  async get(number) {
    return this.rows[number];
  },
  // Numbers of the samples that hold some words; one lower-case string each, made at the first search.
  async search(words, ids) {
    this.hay ??= this.rows.map(([question, gold, answers], k) =>
      [ids[k], question, ...gold, ...answers.flat()].join("\n").toLowerCase());
    const hits = new Set();
    this.hay.forEach((text, k) => { if (text.includes(words)) hits.add(k); });
    return hits;
  },
};
