// What is known about one group: columns of owners in blocks, rebalances, cost and lag, in arrays.
{
  const UNASSIGNED = 0;
  const ABSENT = 1;
  const FIRST_OWNER = 2;
  Object.assign(Coterie, { UNASSIGNED, ABSENT, FIRST_OWNER });

  const unpacked = async (block) => {
    const text = atob(block.data);
    const bytes = new Uint8Array(text.length);
    for (let index = 0; index < text.length; index += 1) bytes[index] = text.charCodeAt(index);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer();
    return { ...block, data: null, cells: new Uint16Array(buffer) };
  };

  Coterie.History = class {
    constructor() {
      this.blocks = [];
      this.times = new Float64Array(0);
      this.rows = [];
      this.points = [];
      this.names = [];
      this.dead = [];
      this.findings = [];
      this.order = new Int32Array(0);
      this.labels = [];
      this.about = {};
      this.stamp = 0; // grows when columns change
    }

    /** What the server need not send again. */
    get known() {
      const last = this.blocks.length ? this.blocks[this.blocks.length - 1].number : 0;
      const open = this.rows.find((row) => row.ended === null);
      const since = open ? open.at : this.rows.length ? this.rows[this.rows.length - 1].at : 0;
      const lag = this.points.length ? this.points[this.points.length - 1][0] : 0;
      return `block=${last}&since_ms=${since}&lag_since_ms=${lag}`;
    }

    /** Take what a server, or a file, has sent. */
    async take(sent) {
      const fresh = await Promise.all(sent.blocks.map(unpacked));
      const first = fresh.length ? fresh[0].number : Infinity;
      const kept = this.blocks.filter((block) => block.number < first && block.number >= sent.first_block);
      this.blocks = [...kept, ...fresh];
      this.rows = [...this.rows.filter((row) => row.at < sent.since), ...sent.rows];
      this.points = [...this.points.filter((point) => point[0] <= sent.lag_since), ...sent.points];
      this.about = sent;
      this.names = sent.names;
      this.dead = sent.dead;
      this.findings = sent.findings;
      this.index(sent);
      this.sum();
      this.stamp += 1;
    }

    index(sent) {
      const count = this.blocks.reduce((sum, block) => sum + block.times.length, 0);
      this.times = new Float64Array(count);
      this.blockOf = new Int32Array(count);
      this.placeOf = new Int32Array(count);
      this.releases = new Map(); // by column: when each member, by its value, gave up all that it has there
      let at = 0;
      this.blocks.forEach((block, number) => {
        for (let index = 0; index < block.releases.length; index += 3) {
          const [place, member, time] = block.releases.slice(index, index + 3);
          if (!this.releases.has(at + place)) this.releases.set(at + place, new Map());
          this.releases.get(at + place).set(member + FIRST_OWNER, time);
        }
        block.times.forEach((time, place) => {
          this.times[at] = time;
          this.blockOf[at] = number;
          this.placeOf[at] = place;
          at += 1;
        });
      });
      const partitions = sent.partitions.length / 2;
      const name = (index) => sent.topics[sent.partitions[2 * index]];
      const order = Array.from({ length: partitions }, (_, index) => index);
      order.sort((a, b) => {
        const one = name(a);
        const other = name(b);
        if (one !== other) return one < other ? -1 : 1;
        return sent.partitions[2 * a + 1] - sent.partitions[2 * b + 1];
      });
      this.order = Int32Array.from(order);
      this.labels = order.map((index) => `${name(index)}-${sent.partitions[2 * index + 1]}`);
    }

    /** Sum up the cost: what rebalances ended, and what sessions of crashed members lasted. */
    sum() {
      const isKnown = (row) => row.ended !== null && row.unassigned !== null && !row.most;
      const changes = this.rows.filter(isKnown).map((row) => [row.ended, row.unassigned, row.avoidable || 0, 0]);
      for (const [, from, to, partitions] of this.dead) changes.push([to, 0, 0, partitions * (to - from)]);
      changes.sort((a, b) => a[0] - b[0]);
      this.costTimes = Float64Array.from(changes, (change) => change[0]);
      [this.cost, this.avoidable, this.dying] = [1, 2, 3].map((at) => {
        let sum = 0;
        return Float64Array.from(changes, (change) => (sum += change[at]));
      });
      this.unknownAvoidable = this.rows.filter((row) => isKnown(row) && row.avoidable === null).length;
      this.unknownCost = this.rows.filter((row) => row.ended !== null && !isKnown(row)).length;
    }

    /** The owners of all partitions in a column, in the order in which they became known. */
    column(index) {
      const block = this.blocks[this.blockOf[index]];
      const from = this.placeOf[index] * block.partitions;
      return block.cells.subarray(from, from + block.partitions);
    }

    ownerIn(index, row) {
      if (index < 0) return ABSENT;
      const column = this.column(index);
      const partition = this.order[row];
      return partition < column.length ? column[partition] : ABSENT;
    }

    /** When the owner in a column gave up everything; Infinity if it did not. */
    releasedIn(index, value) {
      const found = this.releases.get(index);
      return found && found.has(value) ? found.get(value) : Infinity;
    }

    valueAt(row, time) {
      const index = Coterie.lastBefore(this.times, time);
      const value = this.ownerIn(index, row);
      return this.releasedIn(index, value) <= time ? UNASSIGNED : value;
    }

    /** From when until when a partition had the owner that it has at a time. */
    spanAt(row, time) {
      const { times } = this;
      const index = Coterie.lastBefore(times, time);
      const owner = this.ownerIn(index, row);
      const next = index + 1 < times.length ? times[index + 1] : null;
      if (index < 0) return { value: ABSENT, from: null, until: next };
      const released = this.releasedIn(index, owner);
      if (released <= time) return { value: UNASSIGNED, from: released, until: next };
      let from = index;
      let to = index;
      const goesOn = (at) => this.ownerIn(at, row) === owner && this.releasedIn(at, owner) === Infinity;
      while (from > 0 && goesOn(from - 1)) from -= 1;
      while (to + 1 < times.length && goesOn(to) && this.ownerIn(to + 1, row) === owner) to += 1;
      const end = Math.min(to + 1 < times.length ? times[to + 1] : Infinity, this.releasedIn(to, owner));
      return { value: owner, from: times[from], until: Number.isFinite(end) ? end : null };
    }

    get from() {
      const first = [this.times[0], this.rows[0] && this.rows[0].at, this.points[0] && this.points[0][0]];
      return Math.min(...first.filter((time) => time !== undefined));
    }

    get to() {
      const last = this.points[this.points.length - 1];
      const ended = this.rows.map((row) => row.ended || row.at);
      return Math.max(this.about.to || 0, last ? last[0] : 0, ended.length ? ended[ended.length - 1] : 0);
    }

    get isEmpty() {
      return !this.rows.length && !this.points.length && !this.times.length;
    }
  };
}
