! SPDX-License-Identifier: BSD-3-Clause
! Heat diffusion on a plate with checkpoints by libckptfs, in Fortran.
!
!     gfortran heat.f90 $(pkg-config --cflags --libs ckptfs-fortran) -o heat
!     ./heat /mnt/ckpt/heat 2000     # kill it, and start it again
program heat
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  use ckptfs
  implicit none
  integer, parameter :: n = 512, every = 50
  integer(c_long), target, save :: step = 0
  integer(c_long) :: steps
  real(c_double), pointer :: plate(:, :)
  real(c_double), allocatable :: next(:, :)
  character(256) :: dir, text
  integer(c_int) :: r
  type(c_ptr) :: p

  if (command_argument_count() /= 2) error stop 'usage: heat DIR STEPS'
  call get_command_argument(1, dir)
  call get_command_argument(2, text)
  read (text, *) steps

  call check(ckptfs_init(dir), dir)
  call check(ckptfs_protect('step', c_loc(step), c_sizeof(step)), 'step')
  p = ckptfs_malloc('plate', n * n * c_sizeof(1d0))
  if (.not. c_associated(p)) error stop 'plate'
  call c_f_pointer(p, plate, [n, n])
  allocate (next(n, n)) ! recomputed in each step: need not be protected
  plate(:, 1) = 100
  r = ckptfs_restart(0, 0)
  if (r == 0) then
    write (error_unit, '(a, i0)') 'restarting at step ', step
  else if (r /= -2) then ! ENOENT: no checkpoint yet
    call check(r, 'restart')
  end if
  do while (step < steps)
    if (mod(step, int(every, c_long)) == 0 .and. step > 0) call check(ckptfs_checkpoint(), 'checkpoint')
    next(2:n-1, 2:n-1) = 0.25d0 * (plate(1:n-2, 2:n-1) + plate(3:n, 2:n-1) + plate(2:n-1, 1:n-2) + plate(2:n-1, 3:n))
    plate(2:n-1, 2:n-1) = next(2:n-1, 2:n-1)
    step = step + 1
  end do
  print '(a, es20.12)', 'heat ', sum(plate)
  call check(ckptfs_finish(), 'finish')

contains

  subroutine check(error, what)
    integer(c_int), intent(in) :: error
    character(*), intent(in) :: what

    if (error >= 0) return
    write (error_unit, '(3a)') trim(what), ': ', ckptfs_strerror(error)
    stop 1
  end subroutine
end program
