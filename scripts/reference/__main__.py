"""`python -m scripts.reference`: writes the pages."""

from scripts.reference import DIRECTORY, PAGES


def main() -> None:
    """Writes every page anew."""
    for name, page in PAGES.items():
        (DIRECTORY / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
