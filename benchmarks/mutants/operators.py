# SPDX-License-Identifier: Apache-2.0
"""The mutants of a file: small faults, each a piece of the text of one function and what replaces it.

Not mutated is what tests should not hold: texts with spaces, what is logged, ``__repr__``, assertions, types.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
#: Of these, "not" in front of the comparison is the same fault.
EQUALITIES = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
LOG_CALLS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
SKIPPED_DECORATORS = {"overload", "abstractmethod"}


@dataclass(frozen=True)
class Mutant:
    file: str
    #: The outermost function, with its class.
    function: str
    operator: str
    before: str
    after: str
    #: Of the same replacements in the function.
    occurrence: int
    line: int
    #: Where its statement begins.
    statement: int
    #: Bytes of the file.
    start: int
    end: int

    @property
    def within(self) -> tuple[str, str, str, str, int]:
        """What it is, wherever its function stands."""
        return self.function, self.operator, self.before, self.after, self.occurrence

    @property
    def key(self) -> str:
        return f"{self.file}::{self.function}::{self.operator}::{self.before} -> {self.after} #{self.occurrence}"


class Finder(ast.NodeVisitor):
    """Collects nodes with the text that replaces them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.scope: list[str] = []
        self.inside = False
        self.statement = 0
        self.found: list[tuple[str, str, ast.AST, str, int]] = []

    def source(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or ""

    def add(self, operator: str, node: ast.AST, after: str) -> None:
        if self.inside:
            self.found.append((".".join(self.scope), operator, node, after, self.statement))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            self.statement = node.lineno
        super().visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope_of(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        names = {part.id for each in node.decorator_list for part in ast.walk(each) if isinstance(part, ast.Name)}
        if node.name == "__repr__" or names & SKIPPED_DECORATORS:
            return
        if self.inside:
            self.each(node.body)
            return
        self.inside = True
        self.scope_of(node)
        self.inside = False

    visit_AsyncFunctionDef = visit_FunctionDef

    def scope_of(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.scope.append(node.name)
        self.each(node.body)
        self.scope.pop()

    def each(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in self.source(node.test):
            self.negate(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self.negate(condition)
        self.generic_visit(node)

    def negate(self, test: ast.expr) -> None:
        swapped = isinstance(test, ast.Compare) and isinstance(test.ops[0], EQUALITIES)
        dropped = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        if not (swapped or dropped or isinstance(test, ast.Constant)):
            self.add("condition", test, f"not ({self.source(test)})")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.add("not", node, f"({self.source(node.operand)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            swapped = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
            self.add("comparison", node, ast.unparse(swapped))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add("boolean", node, ast.unparse(ast.BoolOp(other, node.values)))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        of_text = any(
            isinstance(side, ast.JoinedStr | ast.Constant) and not is_number(side) for side in (node.left, node.right)
        )
        if type(node.op) in ARITHMETIC and not of_text:
            swapped = ast.unparse(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))
            self.add("arithmetic", node, f"({swapped})" if isinstance(node.op, ast.BitAnd) else swapped)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and is_number(node.value):
            other = ARITHMETIC[type(node.op)]()
            self.add("arithmetic", node, ast.unparse(ast.AugAssign(node.target, other, node.value)))
        else:
            self.add("statement", node, "pass")
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self.add("statement", node, "pass")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self.add("statement", node, "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        if "NotImplementedError" not in self.source(node):
            self.add("statement", node, "pass")
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or is_log_call(node.value):
            return
        if isinstance(node.value, ast.Call | ast.Await):
            self.add("statement", node, "pass")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if is_log_call(node):
            return
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        self.visit(node.func)
        # Types.
        kept = node.args[1:] if name == "cast" else node.args[:1] if name in ("isinstance", "issubclass") else node.args
        for argument in [*kept, *(keyword.value for keyword in node.keywords)]:
            self.visit(argument)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None or isinstance(value, ast.Constant):
            pass
        elif isinstance(value, ast.Compare | ast.BoolOp) or (
            isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
        ):
            self.add("return", node, f"return not ({self.source(value)})")
        else:
            self.add("return", node, "return None")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self.add("loop", node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add("loop", node, "break")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            # An empty tuple catches nothing.
            self.add("except", node.type, "()")
        self.each(node.body)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Nothing depends on assertions."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Python 3.11 does not say where its expressions are."""

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self.add("constant", node, str(not value))
        elif isinstance(value, int | float):
            self.add("constant", node, repr(value + 1))
        elif isinstance(value, str) and value and " " not in value:
            self.add("constant", node, '""')


def is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def is_log_call(node: ast.AST) -> bool:
    """``self.log.info(...)``, ``handler.log.debug(...)``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_CALLS):
        return False
    owner = node.func.value
    return "log" in (
        owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    )


def mutants(path: Path, name: str) -> Iterator[Mutant]:
    """All mutants of a file; whether Python compiles them is not known."""
    text = path.read_text(encoding="utf-8")
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    finder = Finder(text)
    finder.visit(ast.parse(text))
    seen: Counter[tuple[str, str, str, str]] = Counter()
    for function, operator, node, after, statement in finder.found:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        before = " ".join(data[start:end].decode().split())
        occurrence = seen[function, operator, before, after]
        seen[function, operator, before, after] += 1
        yield Mutant(name, function, operator, before, after, occurrence, node.lineno, statement, start, end)


def mutated(data: bytes, mutant: Mutant) -> bytes:
    return data[: mutant.start] + mutant.after.encode() + data[mutant.end :]


def compiles(data: bytes) -> bool:
    try:
        compile(data, "mutant", "exec")
    except SyntaxError:
        return False
    return True
