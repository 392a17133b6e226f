"""Counting the operations of a compiled program, on one written by hand."""

from benchmarks.operations import count

PROGRAM = """HloModule jit_program

%fused (a: f32[2]) -> f32[2] {
  %a = f32[2]{0} parameter(0)
  ROOT %twice = f32[2]{0} add(%a, %a)
}

%off (x: f32[2]) -> f32[2] {
  ROOT %x = f32[2]{0} parameter(0)
}

%on (x: f32[2]) -> f32[2] {
  %x.1 = f32[2]{0} parameter(0)
  %moved = f32[2]{0} copy(%x.1)
  ROOT %made = f32[2]{0} fusion(%moved), kind=kLoop, calls=%fused
}

%body (state: (s32[], f32[2])) -> (s32[], f32[2]) {
  %state = (s32[], f32[2]{0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %v = f32[2]{0} get-tuple-element(%state), index=1
  %side = f32[2]{0} conditional(%i, %v, %v), branch_computations={%off, %on}
  %product = (f32[2]{0}, s8[64]{0}) custom-call(%side), custom_call_target="__cublas$lt$matmul"
  %result = f32[2]{0} get-tuple-element(%product), index=0
  ROOT %next = (s32[], f32[2]{0}) tuple(%i, %result)
}

%condition (state.1: (s32[], f32[2])) -> pred[] {
  %state.1 = (s32[], f32[2]{0}) parameter(0)
  ROOT %more = pred[] constant(true)
}

ENTRY %main (start: f32[2]) -> f32[2] {
  %start = f32[2]{0} parameter(0)
  %zero = s32[] constant(0)
  %first = (s32[], f32[2]{0}) tuple(%zero, %start)
  %loop = (s32[], f32[2]{0}) while(%first), condition=%condition, body=%body
  %last = f32[2]{0} get-tuple-element(%loop), index=1
  ROOT %out = f32[2]{0} fusion(%last), kind=kLoop, calls=%fused
}
"""


def test_every_loop_and_side_has_a_row_with_its_own_operations():
    rows = {row["what"]: (row["operations"], row["kinds"]) for row in count(PROGRAM)}
    assert rows == {
        "program": (1, {"fusion": 1}),
        "program > loop": (1, {"custom-call": 1}),
        "program > loop > side 0": (0, {}),
        "program > loop > side 1": (2, {"copy": 1, "fusion": 1}),
    }
