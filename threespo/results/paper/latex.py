"""Text for LaTeX: what has a meaning there is escaped, and letters that not every font has become commands."""

_COMMANDS = {
    "\\": "\\textbackslash{}",
    "&": "\\&",
    "%": "\\%",
    "$": "\\$",
    "#": "\\#",
    "_": "\\_",
    "{": "\\{",
    "}": "\\}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    # After the end of a row these would be its arguments.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "–": "--",
    "—": "---",
    "“": "``",
    "”": "''",
    "’": "'",
    "†": "\\textdagger{}",
    "\N{MINUS SIGN}": "$-$",
    "±": "$\\pm$",
    "×": "$\\times$",
    "≤": "$\\leq$",
    "≥": "$\\geq$",
    "≈": "$\\approx$",
    "→": "$\\to$",
    "α": "$\\alpha$",
    "β": "$\\beta$",
    "γ": "$\\gamma$",
    "ζ": "$\\zeta$",
    "λ": "$\\lambda$",
    "ξ": "$\\xi$",
    "ω": "$\\omega$",
    "Δ": "$\\Delta$",
    "…": "\\dots{}",
    "\n": " ",
}


def escape_latex(text: str) -> str:
    """Return ``text`` so that LaTeX prints it; letters that are not in the list stay, for engines that read UTF-8."""
    return "".join(_COMMANDS.get(character, character) for character in text)
