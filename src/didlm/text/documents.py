"""Text in: documents from files, split by their hash, or cut into chunks of equal length."""

from pathlib import Path

from didlm.text.blocks import Piece, parse
from didlm.text.opening import chunks, decoded
from didlm.text.reading import file_blocks
from didlm.text.records import Document, Format
from didlm.text.sources import files_of


def read_documents(path: Path, separator: str = "<|endoftext|>", column: str = "text") -> list[str]:
    """The documents of a .txt, .jsonl or .parquet file, a folder of such files, or a glob.

    A .txt file is one document, whatever blank lines it has, unless `separator` occurs in it: then
    the separator stands between documents. Line breaks at either end of a document belong to the
    file and are dropped. In a .jsonl file every line that is not blank is a JSON object, whose
    `column` holds a text, taken as it is; so does the column of a .parquet file. Documents of
    nothing but whitespace are left out.

    Args:
        path: files in UTF-8, with or without a byte order mark, .txt and .jsonl also with .gz, .xz
            or .zst appended.
        separator: what stands between the documents of a .txt file.
        column: the name of the text in the other files; PROMPT+RESPONSE joins two.

    Raises:
        ValueError: if a file cannot be read, is damaged, or there are no documents.
    """
    return [prompt + text for prompt, text in read_pairs(path, separator, column)]


def read_pairs(
    path: Path, separator: str = "<|endoftext|>", column: str = "text"
) -> list[Document]:
    """The same, with the prompt of each document, mostly empty, apart from what follows it."""
    form = Format(column, separator)
    documents: list[Document] = []
    pieces: list[str] = []
    for file in files_of(str(path)):
        for block in file_blocks(file, form):
            found = parse(block, form).documents
            if not isinstance(block, Piece):
                documents += found
                continue
            pieces += [text for _, text in found]
            if block.hash is not None:
                documents.append(("", "".join(pieces)))
                pieces = []
    if not documents:
        raise ValueError(f"{path} holds no documents: all of its text is whitespace")
    return documents


def read_text(path: Path) -> str:
    """The whole of a UTF-8 file, decompressed if its name ends with .gz, .xz or .zst.

    Line breaks stay as they are; a byte order mark is dropped.

    Raises:
        ValueError: if there is no such file, or it is empty, damaged or not in UTF-8.
    """
    content = b"".join(chunk for chunk, _ in chunks(path))
    return decoded(content, path, 0).removeprefix("\ufeff")
