// The story of one rebalance: every statement with its grade and its evidence. What is not known is called unknown.
{
  const { make } = Coterie;

  const evidence = (one) => {
    const when = one.at === null ? "" : ` at ${Coterie.time(one.at)}`;
    return `${one.grade}: ${one.source || "unknown source"}${when}${one.says ? `, ${one.says}` : ""}`;
  };

  const statement = (one) => {
    const grade = one.grade ? make("span", { class: `grade ${one.grade}` }, one.grade) : null;
    const told = [...new Set(one.evidence.map(evidence))];
    const proofs = told.length
      ? make("details", {}, make("summary", {}, "evidence"), make("ul", {}, ...told.map((text) => make("li", {}, text))))
      : null;
    const others = one.contradicts.map((claim) =>
      make("p", { class: "bad" }, `contradicted by ${evidence(claim)}: ${claim.value}`),
    );
    const value = make("span", { class: one.value === "unknown" ? "unknown" : null }, one.value);
    return [make("dt", {}, one.name), make("dd", {}, value, " ", grade, proofs, ...others)];
  };

  const list = (title, items) => (items.length ? [make("h4", {}, title), make("ul", {}, ...items)] : []);

  Coterie.storyPanel = (story, findings, close) => {
    const mine = findings.filter((finding) => finding.rebalances.includes(story.number));
    const moves = story.moves.map(([old, next, count]) =>
      make("li", {}, `${Coterie.plural(count, "partition")} from ${old} to ${next}`),
    );
    if (story.more_moves) moves.push(make("li", {}, `and ${story.more_moves} more pairs of members`));
    const late = story.late.map(([name, ms]) => make("li", {}, `${name}: after ${Coterie.duration(ms)}`));
    return make(
      "aside",
      { class: "story", "aria-label": `Story of rebalance ${story.number}`, tabindex: "-1" },
      make("button", { type: "button", class: "close", "aria-label": "Close the story", onclick: close }, "×"),
      make("h3", {}, `Rebalance to ${story.counts} ${story.number}`),
      make("p", {}, `It lasted: ${story.took}`),
      ...list("Findings that it belongs to", mine.map((one) => make("li", {}, `${one.name}: ${one.summary}`))),
      make("dl", {}, ...story.statements.flatMap(statement)),
      ...list("Partitions moved", moves),
      ...list("When members joined, the last first", late),
    );
  };
}
