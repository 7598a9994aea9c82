/** A command line as words, as a shell splits them: quotes and backslashes, but no variables and no patterns. Pure. */

export type Words = { words: string[]; problem?: undefined } | { problem: string; words?: undefined };

export function splitWords(line: string): Words {
  const words: string[] = [];
  let word = "";
  let isWord = false;
  let quote = "";
  for (let index = 0; index < line.length; index += 1) {
    const character = line[index] as string;
    if (quote === "'") {
      if (character === "'") quote = "";
      else word += character;
    } else if (character === "\\" && index + 1 < line.length) {
      index += 1;
      word += line[index];
      isWord = true;
    } else if (quote === '"') {
      if (character === '"') quote = "";
      else word += character;
    } else if (character === "'" || character === '"') {
      quote = character;
      isWord = true;
    } else if (/\s/.test(character)) {
      if (isWord) words.push(word);
      word = "";
      isWord = false;
    } else {
      word += character;
      isWord = true;
    }
  }
  if (quote !== "") return { problem: `a ${quote} is not closed` };
  if (isWord) words.push(word);
  return words.length === 0 ? { problem: "type a command, for example nvidia-smi" } : { words };
}
